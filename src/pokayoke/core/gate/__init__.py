"""Rules that decide whether a call may run now."""
