"""Removes secrets from everything that is written."""
