"""The planner's side of the data source, in Java: what Spark tells no data source that is written in Python."""
