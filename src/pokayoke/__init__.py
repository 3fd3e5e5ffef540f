"""pokayoke: mistake-proofing for AI agent tool calls."""
