"""Messages that wait: delayed, half, to be retried, dead."""
