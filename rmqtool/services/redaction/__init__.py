"""Overwrite bodies and properties of messages of a stopped store, in every copy that the store has of them."""
