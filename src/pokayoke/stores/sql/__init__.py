"""One set of statements, rows and migrations for every store that speaks SQL."""
