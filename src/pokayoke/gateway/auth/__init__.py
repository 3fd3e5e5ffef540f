"""Who may call the gateway, and how the gateway proves itself to its servers."""
