"""From a tool's answer to a checked result and the text that the model reads."""
