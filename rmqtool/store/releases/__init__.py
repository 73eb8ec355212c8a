"""Where brokers of 4.9 and of 5.3 differ."""
