"""Trace events: where they go and who observes them."""
