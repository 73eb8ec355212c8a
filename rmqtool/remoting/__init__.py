"""One transport for clients and servers of the remoting protocol: frames over TCP, with or without TLS."""
