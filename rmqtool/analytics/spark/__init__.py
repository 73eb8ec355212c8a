"""Starting and controlling Spark, and the Java that it needs."""
