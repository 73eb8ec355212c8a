"""What all handlers of a broker share: its store and tables, its clients, its settings and its counts."""
