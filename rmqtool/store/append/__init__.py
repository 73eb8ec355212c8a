"""Append messages to a store: check, place, write, dispatch and acknowledge them."""
