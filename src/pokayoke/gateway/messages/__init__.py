"""The messages between a client and a server of MCP: read, told apart, and built."""
