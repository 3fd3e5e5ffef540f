"""Hosts and addresses of the network, each in one form."""
