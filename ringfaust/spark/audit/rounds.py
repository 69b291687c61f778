"""One pass over the topics or the lake: everything, or what is new since the last round."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ringfaust.protocol.records import Role
from ringfaust.spark.audit.balance import Balance, kept
from ringfaust.spark.audit.offsets import CannotAudit, TopicOffsets, require_whole, topic_offsets
from ringfaust.spark.audit.period import PeriodReader
from ringfaust.spark.audit.sources import AuditData, topics_of
from ringfaust.spark.audit.verdict import AuditRequest, Verdict, reconcile
from ringfaust.spark.errors import SPARK_ERRORS, text_of
from ringfaust.spark.lake.stream import read_to, read_topic_ids
from ringfaust.spark.topic_ids import refuse_recreated

_WHOLE = (Role.EVENTS, Role.DISPATCHED, Role.EVICTED, Role.DEAD)


def audit(
    spark: SparkSession,
    request: AuditRequest,
    lake: str | None = None,
    opening: Balance | None = None,
) -> Verdict:
    """Audit what the topics, or the lake, contain now.

    Topics are read one after the other. If records arrive in the meantime, a fault may only be a
    record that was not read yet. In that case everything is read a second time, and only the faults
    that both passes found are reported.

    Without a lake it reads the topics. Without the balance of earlier periods it audits everything.

    Raises:
        CannotAudit: the topics or the lake cannot be read.
    """
    before = audit_offsets(spark, request, lake, opening)

    def read(offsets: TopicOffsets) -> AuditData:
        return PeriodReader(spark, request, offsets, lake).read(opening)

    with spark_errors():
        verdict = reconcile(request, read(before), before)
        if not verdict.balanced:
            after = audit_offsets(spark, request, lake, opening)
            if _end_offsets(after) != _end_offsets(before):
                verdict = reconcile(request, read(after), after, confirmed_by=verdict.findings)
    return verdict


def audit_round(
    spark: SparkSession, request: AuditRequest, lake: str | None, opening: Balance | None
) -> tuple[Verdict, Balance]:
    """Audit what is new since the round before, and return the balance for the next one.

    Raises:
        CannotAudit: the topics or the lake cannot be read.
    """
    offsets = audit_offsets(spark, request, lake, opening)
    with spark_errors():
        reader = PeriodReader(spark, request, offsets, lake)
        verdict = reconcile(request, reader.read(opening), offsets, closes=True)
        assert verdict.closing is not None
        return verdict, kept(verdict.closing)


def audit_offsets(
    spark: SparkSession,
    request: AuditRequest,
    lake: str | None = None,
    opening: Balance | None = None,
) -> TopicOffsets:
    """The offsets of all topics; those that are read from their beginning must have it.

    A topic whose route was removed may not exist any more. The lake has what it has read of it, as
    if the brokers had dropped that.

    Raises:
        CannotAudit: a topic is missing, was created again since the lake has read it (R111), or has
            lost records that the audit needs.
    """
    topics = topics_of(request.worker, request.queues)
    found = asyncio.run(topic_offsets(request.worker, [*topics["inputs"], *topics["ours"]]))
    if lake is None and opening is None:
        require_whole(found, [request.worker.topic(role) for role in _WHOLE])
    if lake is not None:
        # The records of a topic that was created again would be taken for those of the old one.
        known = read_topic_ids(spark, lake, request.worker).known
        names, reader = {topic for topic, _ in found}, f"the lake at {lake}"
        remedy = "Audit the old records in the lake's tables, and the new ones from a new lake"
        asyncio.run(
            refuse_recreated(request.worker, names, known, reader, remedy, refusal=CannotAudit)
        )
        for topic, of in read_to(spark, lake).items():
            if topic not in topics["inputs"] and topic not in topics["ours"]:
                found |= {(topic, int(number)): (end, end) for number, end in of.items()}
    return found


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn errors of Spark into one that says that there is no verdict.

    Raises:
        CannotAudit: Spark raised an error.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        first, *_ = text_of(error).strip().splitlines() or [type(error).__name__]
        raise CannotAudit(f"the Spark job failed: {first}") from error


def _end_offsets(offsets: TopicOffsets) -> dict[tuple[str, int], int]:
    return {where: end for where, (_, end) in offsets.items()}
