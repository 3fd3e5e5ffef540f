"""JSON Schema: compile, limit, explain, and read facts from it."""
