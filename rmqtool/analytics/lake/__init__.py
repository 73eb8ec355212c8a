"""Messages as tables of a lakehouse: Delta Lake and Apache Iceberg, without Spark."""
