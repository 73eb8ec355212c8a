"""Commands that serve clients over the wire."""
