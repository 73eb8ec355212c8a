"""The Spark that spreads the work, and the Java below it."""
