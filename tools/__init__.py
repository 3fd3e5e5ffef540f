"""Commands of the project itself; none of them is shipped."""
