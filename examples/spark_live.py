"""New messages of a topic to Parquet, each once: run it again, from cron for example, and it goes on where it ended.

Usage: spark-submit [--master ...] examples/spark_live.py HOST:9876 TOPIC OUT
"""

import sys

from pyspark.sql import SparkSession


def main(namesrv: str, topic: str, out: str) -> int:
    spark = SparkSession.builder.getOrCreate()
    reader = spark.readStream.format("rocketmq").option("namesrv", namesrv).option("subscribe", topic)
    reader.option("startingOffsets", "earliest")  # for the first run; later ones begin where the last one ended
    reader.option("maxOffsetsPerTrigger", "1000000")
    messages = reader.load().drop("sourceFile", "fileOffset")
    query = (
        messages.writeStream.format("parquet")
        .option("checkpointLocation", f"{out}.checkpoint")
        .trigger(availableNow=True)
        .start(out)
    )
    query.awaitTermination()
    print(f"{sum(progress.numInputRows for progress in query.recentProgress)} messages")
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 4 else __doc__)
