"""Writes contracts from recorded calls."""
