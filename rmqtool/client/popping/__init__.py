"""Messages that brokers hand out one by one, instead of whole queues (POP, of 5.x)."""
