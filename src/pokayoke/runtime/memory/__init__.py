"""What a run remembers while it is open."""
