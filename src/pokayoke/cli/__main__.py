"""`python -m pokayoke.cli` is `pokayoke`."""

from pokayoke.cli import main

main()
