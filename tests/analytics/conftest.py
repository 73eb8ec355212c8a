"""One Spark for all tests of analytics: starting it takes longer than running them."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqtool.analytics.spark.java import find_java
from rmqtool.errors import MissingRuntime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqtool.store.layout.paths import StoreLayout

_NO_PANDAS = str(Path(__file__).with_name("no_pandas"))
sys.path.insert(0, _NO_PANDAS)


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A session on two cores, also used by dumps."""
    try:
        find_java()
    except MissingRuntime as err:
        pytest.skip(str(err))
    from rmqtool.analytics.spark.jvm import environment
    from rmqtool.analytics.spark.session import session_of, spark_context

    path = os.pathsep.join(part for part in (_NO_PANDAS, os.environ.get("PYTHONPATH")) if part)
    settings = {"spark.sql.shuffle.partitions": "1"}
    with environment({"PYTHONPATH": path}), spark_context("local[2]", settings=settings) as context:
        yield session_of(context)


@pytest.fixture(scope="session")
def day(tmp_path_factory: pytest.TempPathFactory) -> "StoreLayout":
    """A store of one day, read-only."""
    from tests.analytics.stores import day_store

    return day_store(tmp_path_factory.mktemp("day"))
