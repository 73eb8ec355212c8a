"""The subjects of a live cluster, asked over the remoting protocol."""
