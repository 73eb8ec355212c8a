"""Differences between the recoveries of 4.9, 5.3, 5.4 and 5.5 brokers."""
