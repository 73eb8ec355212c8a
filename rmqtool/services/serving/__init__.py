"""The services that a broker runs all the time."""
