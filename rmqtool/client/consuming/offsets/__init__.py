"""Where a group is in its queues: in memory, at brokers, and in a file of its own."""
