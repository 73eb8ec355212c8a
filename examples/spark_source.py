"""Traffic of one or many stores as a Spark job, by the data source ``rocketmq``: it runs where spark-submit says.

Usage: spark-submit [--master ...] examples/spark_source.py STORE[,STORE...] [TOPIC]
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(stores: str, topic: str | None = None) -> int:
    spark = SparkSession.builder.getOrCreate()
    reader = spark.read.format("rocketmq")
    reader.schema("broker string, topic string, storeTimestamp timestamp, storeSize int")  # nothing else is decoded
    if topic is not None:
        reader.option("topic", topic)  # by the queues, instead of the whole log
    messages = reader.load(stores)
    traffic = messages.groupBy("broker", "topic").agg(f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"))
    for row in traffic.orderBy("broker", "topic").collect():
        print(*row)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]) if len(sys.argv) in (2, 3) else __doc__)
