"""Versions of contracts: the lock, the rollout, differences."""
