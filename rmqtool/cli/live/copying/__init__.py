"""Commands that copy messages: from a store to a cluster, and from a cluster into a store."""
