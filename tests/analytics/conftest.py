"""One Spark for all tests of analytics: starting it takes longer than all of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rmqtool.analytics.java import find_java
from rmqtool.errors import MissingRuntime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A session on two cores; dumps find it and use it."""
    try:
        find_java()
    except MissingRuntime as err:
        pytest.skip(str(err))
    from rmqtool.analytics.session import spark_session

    with spark_session("local[2]", settings={"spark.sql.shuffle.partitions": "1"}) as session:
        yield session
