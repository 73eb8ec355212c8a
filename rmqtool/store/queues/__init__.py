"""Consume queues: reading them, and building or truncating them in recovery."""
