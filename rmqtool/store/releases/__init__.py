"""Differences between the recoveries of 4.9, 5.3 and 5.5 brokers."""
