"""Requests of clients."""
