"""A model of what a store must hold, held against it through random commands, kills, damages and real engines."""
