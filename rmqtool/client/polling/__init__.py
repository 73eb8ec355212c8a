"""Consuming by polls: queues of a group, or those that are asked for."""
