"""The Spark data source ``rocketmq`` on a live cluster."""
