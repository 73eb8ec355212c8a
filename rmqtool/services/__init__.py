"""What the bytes mean: lookups and the broker's own answers, on top of the store engine."""
