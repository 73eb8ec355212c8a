"""Messages on their way into a broker, by the rules of client and broker."""
