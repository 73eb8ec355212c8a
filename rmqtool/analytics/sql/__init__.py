"""SQL and ready reports over stores."""
