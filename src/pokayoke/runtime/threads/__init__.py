"""Clock, workers, queues, forks."""
