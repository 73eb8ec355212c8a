"""Sessions that run already: they too start the Python that runs this for data sources."""

import os
import sys
from typing import TYPE_CHECKING

from rmqtool.interpreter import is_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def give_this_python(spark: "SparkSession") -> None:
    """Have a local session that runs already start this Python for data sources that are registered with it.

    Spark Connect and clusters choose their Python themselves; there nothing changes.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or not (context.master or "").startswith("local") or not hasattr(spark, "_jsparkSession"):
        return
    if os.environ.get("PYSPARK_PYTHON") == sys.executable or is_needed():  # the first may be set since the start
        context.pythonExec = sys.executable
