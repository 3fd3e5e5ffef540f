"""Statements, rows and migrations for every store that speaks SQL."""
