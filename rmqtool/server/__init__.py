"""Name server and broker: a store served to real clients over the remoting protocol."""
