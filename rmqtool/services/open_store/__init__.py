"""An open store: its messages, its queues, and the tables of its broker."""
