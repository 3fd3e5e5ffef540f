"""The state of each effect, and the decision whether a call may claim one."""
