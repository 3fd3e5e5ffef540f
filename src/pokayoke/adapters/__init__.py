"""PLUG IN: one file per framework, none imported unasked.

Every adapter exports `calls(reply, run)` and `message(outcome)`.
"""
