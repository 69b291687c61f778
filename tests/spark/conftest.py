"""One Spark session for all tests here: a start costs five seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ringfaust.spark.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("ringfaust tests", "local[2]")
    yield session
    session.stop()
