"""What every adapter needs: the run inside a framework's loop, contracts from its tools, the order of calls."""
