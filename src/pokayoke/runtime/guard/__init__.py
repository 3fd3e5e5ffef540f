"""The guard: contracts, policy, store and trace in one object."""
