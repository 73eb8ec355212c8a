"""What takes the space of a store, and how long it will."""
