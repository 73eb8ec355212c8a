"""Stream from a store to Parquet files until killed: ``python stream_reader.py STORE CHECKPOINT OUT``."""

import sys

from rmqtool.analytics.spark.session import session_of, spark_context


def main(store: str, checkpoint: str, out: str) -> None:
    """Run forever."""
    with spark_context("local[2]", settings={"spark.sql.shuffle.partitions": "1"}) as context:
        frame = session_of(context).readStream.format("rocketmq").option("maxBytesPerTrigger", "15000").load(store)
        query = (
            frame.select("physicalOffset", "body", "sourceFile")
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="200 milliseconds")
            .start(out)
        )
        print("running", flush=True)
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:4])
