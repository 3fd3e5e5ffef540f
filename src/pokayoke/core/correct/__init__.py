"""Bounded corrections that make arguments fit their schema, each one recorded."""
