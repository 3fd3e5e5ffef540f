"""DO: guards and runs, the two drivers, tools from functions, configuration, trace, workspace files."""
