"""Text: clipping, linear-time patterns, characters that cannot act."""
