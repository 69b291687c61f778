"""A record's queue, as the job names it to find its home, is the one that the road then names."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ringfaust.protocol.routes import Route, queue_namer
from ringfaust.spark.columns import ConsumedRecord
from ringfaust.spark.ring.job import _queue_name

SCHEMA = "topic string, key binary, headers array<struct<key:string, value:binary>>"
HEADERS = [("kind", b"old"), ("other", b"x"), ("kind", b"new")]


@pytest.mark.parametrize(
    "template",
    ["plain", "{topic}", "q.{key}", "{header:kind}", "{topic}.{header:other}.{key}"],
)
def test_job_and_road_name_the_same_queue(spark: SparkSession, template: str) -> None:
    route = Route("orders", template)
    record = ConsumedRecord("orders", 0, 0, 0, 0, b"k", b"", HEADERS)
    rows = spark.createDataFrame([("orders", b"k", HEADERS)], SCHEMA)
    found = rows.select(_queue_name(route).alias("queue")).first()
    assert found is not None
    assert found["queue"] == queue_namer(template)(record)


def test_a_header_that_is_not_there_names_none(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("orders", b"k", HEADERS)], SCHEMA)
    found = rows.select(_queue_name(Route("orders", "{header:none}")).alias("queue")).first()
    assert found is not None
    assert found["queue"] is None
