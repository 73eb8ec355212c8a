"""The jobs of a broker, by what clients ask of it."""
