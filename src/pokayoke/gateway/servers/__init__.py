"""MCP servers behind the gateway: what the file says of them, their names, their processes and connections."""
