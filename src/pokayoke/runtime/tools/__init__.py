"""Tools as Python functions, and the tools that a run offers."""
