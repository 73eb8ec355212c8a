"""Stream messages to Parquet files or a table until killed: ``python stream_reader.py OPTIONS CHECKPOINT OUT [TO]``.

OPTIONS are those of the data source, as JSON. TO is parquet, delta or iceberg; for Iceberg, OUT is
CATALOG.NAMESPACE.NAME of a catalog that PyIceberg knows. Tables get batches as the page ``spark`` shows it.
"""

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from rmqtool.analytics.spark.session import session_of, spark_context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY = "kept"
Add = Callable[["DataFrame", int], None]


def add_to_delta(path: str) -> Add:
    """What adds a batch to a table of Delta Lake."""
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    def add(batch: "DataFrame", number: int) -> None:
        last = DeltaTable(path).transaction_version(QUERY) if DeltaTable.is_deltatable(path) else None
        if last is None or last < number:
            once = CommitProperties(app_transactions=[Transaction(QUERY, number)])
            write_deltalake(path, batch.toArrow(), mode="append", commit_properties=once)

    return add


def add_to_iceberg(name: str) -> Add:
    """What adds a batch to a table of Iceberg."""
    from pyiceberg.catalog import load_catalog

    catalog, _dot, table_name = name.partition(".")

    def add(batch: "DataFrame", number: int) -> None:
        rows = batch.toArrow()
        here = load_catalog(catalog)
        here.create_namespace_if_not_exists(table_name.rpartition(".")[0])
        table = here.create_table_if_not_exists(table_name, rows.schema)
        if int(table.properties.get(QUERY, -1)) < number:
            with table.transaction() as once:
                once.append(rows)
                once.set_properties({QUERY: str(number)})

    return add


def main(options: str, checkpoint: str, out: str, to: str = "parquet") -> None:
    """Run forever."""
    with spark_context("local[2]", settings={"spark.sql.shuffle.partitions": "1"}) as context:
        frame = session_of(context).readStream.format("rocketmq").options(**json.loads(options)).load()
        writer = (
            frame.select("physicalOffset", "body", "sourceFile")
            .writeStream.option("checkpointLocation", checkpoint)
            .trigger(processingTime="200 milliseconds")
        )
        if to == "parquet":
            query = writer.format("parquet").start(out)
        else:
            query = writer.foreachBatch(add_to_delta(out) if to == "delta" else add_to_iceberg(out)).start()
        print("running", flush=True)
        try:
            query.awaitTermination()
        except StreamingQueryException as err:
            sys.exit(str(err))  # here, because its text is in Java


if __name__ == "__main__":
    main(*sys.argv[1:5])
