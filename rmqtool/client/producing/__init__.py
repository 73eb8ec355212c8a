"""Sending: messages, queue selection, attempts, batches."""
