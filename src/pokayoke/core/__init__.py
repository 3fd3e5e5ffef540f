"""DECIDE: pure rooms, in the order a call walks through them.

Nothing in here opens, waits, logs, reads a clock or draws a random number.
"""
