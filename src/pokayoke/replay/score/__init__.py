"""Scores recorded calls against contracts."""
