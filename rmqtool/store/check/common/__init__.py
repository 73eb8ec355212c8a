"""What all checks share: the store, and the findings."""
