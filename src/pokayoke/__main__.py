"""`python -m pokayoke`: the command, where its script is not on the path."""

from pokayoke.cli import main

if __name__ == "__main__":
    main()
