"""What the bytes mean: look-ups and the broker's services, on top of the store."""
