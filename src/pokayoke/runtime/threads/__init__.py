"""Clock, worker pool, background queue and forks."""
