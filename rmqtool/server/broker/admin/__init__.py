"""The jobs of a broker that administrators and their tools ask for."""
