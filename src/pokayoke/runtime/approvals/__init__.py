"""Questions to a person, and how they reach one."""
