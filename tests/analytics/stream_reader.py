"""Stream messages to Parquet files until killed: ``python stream_reader.py OPTIONS CHECKPOINT OUT``.

OPTIONS are those of the data source, as JSON.
"""

import json
import sys

from pyspark.errors import StreamingQueryException

from rmqtool.analytics.spark.session import session_of, spark_context


def main(options: str, checkpoint: str, out: str) -> None:
    """Run forever."""
    with spark_context("local[2]", settings={"spark.sql.shuffle.partitions": "1"}) as context:
        frame = session_of(context).readStream.format("rocketmq").options(**json.loads(options)).load()
        query = (
            frame.select("physicalOffset", "body", "sourceFile")
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="200 milliseconds")
            .start(out)
        )
        print("running", flush=True)
        try:
            query.awaitTermination()
        except StreamingQueryException as err:
            sys.exit(str(err))  # here, because its text is in Java


if __name__ == "__main__":
    main(*sys.argv[1:4])
