"""Make a store of another form from a store, which stays as it is."""
