"""The shared ledger in PostgreSQL."""
