"""Lite topics of 5.5: subscriptions, and pops of their light queues."""
