"""Measured ratios: what a guarded call costs beside its floor, the common recipe and a peer.

Run with `make bench` or `python -m bench`. Ratios are taken side by side in one run, interleaved,
medians; absolute figures are printed for orientation and should not be compared between machines.
"""
