"""Learns contracts from recorded calls."""
