"""From schema problems to findings that say what to send instead."""
