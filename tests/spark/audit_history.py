"""A history of tests/testing/test_accounts.py as DataFrames, as if Spark had read it from Kafka."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.sources import (
    AuditData,
    AuditRequest,
    read_commands,
    read_events,
    read_inputs,
    read_outputs,
    read_repartition,
)
from ringfaust.spark.audit.verdict import Verdict, reconcile
from tests.testing.test_accounts import History

SCHEMA = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
WORKER = WorkerConfig(application="app", partitions=1)
QUEUES = QueuesConfig.model_validate(
    {"routes": [{"topic": "in", "queue": "q.{key}"}], "queues": {"q.*": {"ring_size": 2}}}
)


def records(spark: SparkSession, history: History, *roles: str) -> DataFrame:
    """The records of topics; offsets follow from their places, so a removed record shifts them."""
    rows = [
        (
            record.topic if record.topic == "in" else WORKER.topic(record.topic),
            record.partition, number, None, record.key, record.value,
            [(name, value) for name, value in record.headers] or None,
        )
        for role in roles
        for number, record in enumerate(history.topics.get(role, []))
    ]  # fmt: skip
    return spark.createDataFrame(rows, SCHEMA)


def audit_data(spark: SparkSession, history: History) -> AuditData:
    """All data of an audit."""
    outputs = records(spark, history, Role.EVICTED, Role.DEAD, Role.DISPATCHED)
    return AuditData(
        inputs=read_inputs(records(spark, history, "in")),
        commands=read_commands(records(spark, history, "control")),
        repartition=read_repartition(records(spark, history, "hop")),
        lines=read_events(records(spark, history, Role.EVENTS)),
        outputs=read_outputs(outputs, WORKER),
    )


def audit(spark: SparkSession, history: History, **options: Any) -> Verdict:
    """Audit a history."""
    request = AuditRequest(WORKER, options.pop("queues", QUEUES), **options)
    return reconcile(request, audit_data(spark, history))
