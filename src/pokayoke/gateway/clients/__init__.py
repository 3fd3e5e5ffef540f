"""Client configurations: find the servers in one, wrap them with the gateway, unwrap them.

In: the configuration file of an MCP client, in that client's own format.
Out: the same file with other command lines; everything else in it stays as it was, byte for byte.
Never: a write that was not asked for, or that cannot be taken back.
"""
