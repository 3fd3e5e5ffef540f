"""Message formats of the model providers."""
