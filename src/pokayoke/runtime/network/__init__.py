"""Reaches the network safely."""
