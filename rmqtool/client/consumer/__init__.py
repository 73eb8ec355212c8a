"""Consumers: those that pull, poll, are given messages by a listener, and what they are made of."""
