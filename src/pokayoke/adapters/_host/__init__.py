"""What every adapter shares: base classes for its two sides, the run, contracts, calls, approvals and ordering."""
