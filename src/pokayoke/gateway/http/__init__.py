"""The gateway over streamable HTTP."""
