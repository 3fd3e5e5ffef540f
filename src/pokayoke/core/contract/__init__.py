"""What a tool promises: schemas, effect, identity, limits."""
