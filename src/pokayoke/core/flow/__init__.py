"""The path of one call, from the model's request to its outcome."""
