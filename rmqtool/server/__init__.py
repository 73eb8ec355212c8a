"""Servers for clients and brokers: the broker and the name server."""
