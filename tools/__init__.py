"""Commands of the project itself; nothing in here is shipped."""
