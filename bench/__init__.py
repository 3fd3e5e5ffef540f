"""Benchmarks as ratios: a guarded call over its floor, the common recipe and a peer.

Run with `make bench` or `python -m bench`. Both sides of a ratio are measured in one run, interleaved; values are
medians. Absolute figures are printed for orientation and should not be compared between machines.
"""
