"""From a tool name to the contract in force."""
