"""STAND BETWEEN: guards MCP servers for clients that cannot import a library.

In: the messages of a client and of its servers, or a client's configuration.
Out: the same messages, changed only where a guard acts.
Never: an import from the adapters or the command line.
"""
