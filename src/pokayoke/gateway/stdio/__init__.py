"""One server behind its standard streams, and the two threads that carry its lines.

In: lines of a client.
Out: lines of the server, which it starts, watches and ends.
Never: an SDK of the protocol, or an event loop: both cost more than the guard.
"""
