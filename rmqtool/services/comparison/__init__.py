"""Compare two stores."""
