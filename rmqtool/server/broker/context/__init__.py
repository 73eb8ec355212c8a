"""State shared by all handlers of a broker: store, tables, clients, settings, counts."""
