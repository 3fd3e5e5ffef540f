"""Output: a tool's result -> a checked value, and the text that the model reads."""
