"""Sending: messages, the choice of a queue, attempts, batches."""
