"""Opens and writes files safely."""
