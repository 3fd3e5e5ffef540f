"""Message formats of the model providers: replies, streams, answers, media, tool definitions."""
