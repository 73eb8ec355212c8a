"""Consume queues: plain entries, their extension, and the batch queues of 5.x."""
