"""Consuming in a group: queues are shared with its other members, and messages handed to a listener."""
