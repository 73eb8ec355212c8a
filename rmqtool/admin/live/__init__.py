"""The subjects of a live cluster, queried over the remoting protocol."""
