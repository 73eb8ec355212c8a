"""Consume queues against the commit log."""
