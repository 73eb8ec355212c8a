"""What serves clients and brokers over the wire."""
