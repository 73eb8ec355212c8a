"""Message traces: records of what clients did with messages, stored by brokers."""
