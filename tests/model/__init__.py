"""A model of the required content of a store, checked through random commands, kills, damage and real engines."""
