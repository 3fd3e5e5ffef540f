"""Redaction: removes secrets from everything that is written."""
