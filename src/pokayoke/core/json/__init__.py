"""JSON: strict parsing, canonical form, pointers, Python objects."""
