"""Consume queues: read, and built or cut by recovery."""
