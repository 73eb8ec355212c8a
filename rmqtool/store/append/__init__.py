"""Messages into a store: checked, placed, written, dispatched, acknowledged."""
