"""SQL queries and predefined reports over stores."""
