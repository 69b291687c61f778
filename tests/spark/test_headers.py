"""Columns of headers do what the functions of `protocol` do."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ringfaust.protocol import cloud_events as ce
from ringfaust.spark.kafka import without_attributes

PLAIN = [("ringfaust-queue", b"q"), ("ringfaust-handovers", b"0")]
OURS = [(name, b"x") for name in ce.ATTRIBUTES]


@pytest.mark.parametrize(
    "headers", [[], PLAIN, [*OURS, *PLAIN], [*PLAIN, *OURS], [("ce_subject", b"s"), *PLAIN, *OURS]]
)
def test_without_attributes(spark: SparkSession, headers: list[tuple[str, bytes]]) -> None:
    kind = "headers array<struct<key: string, value: binary>>"
    (row,) = spark.createDataFrame([(headers,)], kind).select(
        without_attributes(F.col("headers")).alias("headers")
    ).collect()  # fmt: skip
    assert [(key, bytes(value)) for key, value in row.headers] == list(
        ce.without_attributes(headers)
    )
