"""Makes Spark sessions that are already running use this Python for data sources."""

import os
import sys
from typing import TYPE_CHECKING

from rmqtool.interpreter import is_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def give_this_python(spark: "SparkSession") -> None:
    """Make a running local session use this Python for data sources registered with it.

    Spark Connect and clusters choose their own Python and are not changed.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or not (context.master or "").startswith("local") or not hasattr(spark, "_jsparkSession"):
        return
    if (
        os.environ.get("PYSPARK_PYTHON") == sys.executable or is_needed()
    ):  # PYSPARK_PYTHON may have been set after the start
        context.pythonExec = sys.executable
