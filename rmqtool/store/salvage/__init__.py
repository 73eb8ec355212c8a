"""What can be saved of a store that is beyond recovery."""
