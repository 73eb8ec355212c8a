"""Reading queues of live brokers by offset, without joining a group of consumers."""
