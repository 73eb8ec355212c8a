"""Look-ups of messages, queues, topics and config files."""
