"""What there is to see of a store at a glance."""
