"""PLUG IN: one folder per framework; none is imported unless the user asks for it.

Every adapter exports `calls(reply, run)` and `message(outcome)`; that of a framework also `contracts(tools, ...)`.
"""
