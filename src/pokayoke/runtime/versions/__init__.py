"""The contracts.lock file and the contracts it selects."""
