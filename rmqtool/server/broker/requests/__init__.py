"""The jobs of a broker, by what clients and administrators ask of it."""
