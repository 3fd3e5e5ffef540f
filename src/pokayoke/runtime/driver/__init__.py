"""Performs the steps of a call, for synchronous and asynchronous callers."""
