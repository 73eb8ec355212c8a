"""A live cluster as a client sees it: name servers, routes, connections to brokers, heartbeats."""
