"""Ready-made queries through the data source, to compare with the command."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rmqtool.analytics.source.tables import SCHEMAS
from rmqtool.analytics.sql.ready import READY


def ready_frame(spark: SparkSession, name: str, path: str, **options: str | int) -> DataFrame:
    """The rows of a ready-made query as a data frame.

    Args:
        name: a key of :data:`READY`.
        path: path of one or several stores.
        options: options of the data source, such as ``topic`` or ``since``.
    """
    ready, frames = READY[name], {}
    for table, columns in ready.columns.items():
        schema = from_arrow_schema(SCHEMAS[table])
        chosen = type(schema)([schema[column] for column in columns])
        frames[table] = spark.read.format("rocketmq").schema(chosen).options(table=table, **options).load(path)
    return spark.sql(ready.query, **frames)
