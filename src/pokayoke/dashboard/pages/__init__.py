"""One file per screen: what it reads, what it shows, what may be decided there."""
