"""What takes up a store's space, and for how long."""
