"""Message traces: what clients did with messages, kept by brokers."""
