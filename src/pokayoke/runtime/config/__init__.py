"""Reads the policy and the contract files."""
