"""Traffic of one or many stores as a Spark job, by the data source ``rocketmq``: it runs where spark-submit says.

Usage: spark-submit [--master ...] examples/spark_source.py STORE[,STORE...] [TOPIC]
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(stores: str, topic: str | None = None) -> int:
    # filters reach the source, which then reads queues and index instead of the whole log
    spark = SparkSession.builder.config("spark.sql.python.filterPushdown.enabled", "true").getOrCreate()
    messages = (
        spark.read.format("rocketmq")
        .schema("broker string, topic string, storeTimestamp timestamp, storeSize int")  # nothing else is decoded
        .load(stores)
    )
    if topic is not None:
        messages = messages.where(f.col("topic") == topic)
    traffic = messages.groupBy("broker", "topic").agg(f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"))
    for row in traffic.orderBy("broker", "topic").collect():
        print(*row)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]) if len(sys.argv) in (2, 3) else __doc__)
