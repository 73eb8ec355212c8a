"""Copy messages to a cluster, each once."""
