"""One pass over the topics or the lake: everything, what is new since the last round, or a day.

A closed day of a lake is not read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date

from pyspark.sql import SparkSession

from ringfaust.errors import BadSetting
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.balance import Balance, ClosedDays, kept
from ringfaust.spark.audit.offsets import (
    CannotAudit,
    TopicOffsets,
    offsets_at,
    require_whole,
    topic_offsets,
)
from ringfaust.spark.audit.period import NEAR_MS, PeriodReader, day_at, end_of, start_of
from ringfaust.spark.audit.sources import AuditData, AuditRequest, topics_of
from ringfaust.spark.audit.verdict import Verdict, reconcile
from ringfaust.spark.lake.stream import OUTPUTS, read_to, read_topic_ids
from ringfaust.spark.topic_ids import refuse_recreated

_WHOLE = (Role.EVENTS, Role.DISPATCHED, Role.EVICTED, Role.DEAD)


def audit(spark: SparkSession, request: AuditRequest, opening: Balance | None = None) -> Verdict:
    """Audit what the topics, or the lake, contain now.

    Topics are read one after the other. If records arrive in the meantime, a fault may only be a
    record that was not read yet. In that case everything is read a second time, and only the faults
    that both passes found are reported.

    Without the balance of earlier periods it audits everything.
    """
    before = audit_offsets(spark, request, opening)

    def read(offsets: TopicOffsets) -> AuditData:
        return PeriodReader(spark, request, offsets).read(opening)

    verdict = reconcile(request, read(before))
    if not verdict.balanced:
        after = audit_offsets(spark, request, opening)
        if after != before:
            verdict = reconcile(request, read(after), confirmed_by=verdict.findings)
    return verdict


def audit_round(
    spark: SparkSession, request: AuditRequest, opening: Balance | None
) -> tuple[Verdict, Balance]:
    """Audit what is new since the round before, and return the balance for the next one."""
    offsets = audit_offsets(spark, request, opening)
    data = PeriodReader(spark, request, offsets).read(opening)
    verdict = reconcile(request, data, closes=True)
    assert verdict.closing is not None
    return verdict, kept(verdict.closing)


def audit_offsets(
    spark: SparkSession, request: AuditRequest, opening: Balance | None = None
) -> TopicOffsets:
    """The offsets of all topics; those that are read from their beginning must have it.

    A topic whose route was removed may not exist any more. The lake has what it has read of it, as
    if the brokers had dropped that.

    Raises:
        CannotAudit: a topic is missing, was created again since the lake has read it (R111), or has
            lost records that the audit needs.
    """
    topics, lake = topics_of(request), request.lake
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


@dataclass(frozen=True, slots=True)
class DayVerdict:
    """The result of auditing one closed day."""

    day: date
    verdict: Verdict
    closing: Balance
    """What the next day begins with."""


class LakeDays:
    """The days (UTC) of a lake."""

    def __init__(self, spark: SparkSession, request: AuditRequest, offsets: TopicOffsets) -> None:
        assert request.lake is not None, "only a lake has days"
        self._spark = spark
        self._request = request
        self._lake = request.lake
        self._closed = ClosedDays(spark, request.lake)
        self._reader = PeriodReader(spark, request, offsets)

    def opening(self, since: date | None = None) -> Balance | None:
        """The balance of the last closed day; None if no day is closed.

        Only days before `since` count, if it is given.

        Raises:
            CannotAudit: the balance was changed, or days between it and `since` are not closed.
        """
        days = [day for day in self._closed.days() if since is None or day < since]
        last = days[-1] if days else None
        if since is not None:
            between = self._reader.days(end_of(last) if last else 0, start_of(since))
            if between:
                raise CannotAudit(
                    f"{since} has no opening balance: {between[-1]} is not closed. Begin with "
                    f"--since {between[0]}, or leave out --since"
                )
        return self._closed.load(last) if last else None

    def open_days(self, opening: Balance | None, until_ms: int) -> list[date]:
        """The days after a balance in which a worker wrote events and that end by a time."""
        return self._reader.days(opening.since_ms or 0 if opening else 0, until_ms)

    def require_complete(self, until_ms: int) -> None:
        """Raise CannotAudit if the lake lacks events or outputs that are older than a time."""
        worker = self._request.worker
        topics = [worker.topic(role) for role in (Role.EVENTS, *OUTPUTS)]
        has = read_to(self._spark, self._lake)
        for (topic, partition), end in asyncio.run(offsets_at(worker, topics, until_ms)).items():
            offset = has.get(topic, {}).get(str(partition), 0)
            if offset < end:
                raise CannotAudit(
                    f"the lake has read topic {topic}, partition {partition}, only up to offset "
                    f"{offset}, but {day_at(until_ms - 1)} ends at {end}: run "
                    "`ringfaust spark lake --once` first"
                )

    def close(self, days: list[date], opening: Balance | None) -> Iterator[DayVerdict]:
        """Audit and close days, in order.

        Two days are closed as one if the order of their records and timestamps differs in between.

        It begins with the opening balance, or with the first record.
        """
        for day in days:
            end_ms = end_of(day)
            data = self._reader.read(opening, end_ms)
            verdict = reconcile(self._request, data, closes=True)
            assert verdict.closing is not None
            if not self._reader.is_clean(end_ms, verdict.closing.next):
                continue
            faults = dict(opening.faults) if opening else {}
            if not verdict.balanced:
                faults[str(day)] = verdict.kinds
            balance = replace(verdict.closing, since_ms=end_ms, faults=faults)
            opening = self._closed.save(day, balance, opening)
            yield DayVerdict(day, verdict, opening)


def last_end(until: date | None, now_ms: int) -> int:
    """The time by which the days to close have ended, in ms since 1970.

    `until` is the day after the last one to close; None: as many as possible.

    Raises:
        BadSetting: `until` is in the future.
    """
    today = day_at(now_ms)
    if until is not None and until > today:
        raise BadSetting("until", str(until), f"is in the future; use {today} to close every day")
    over = start_of(day_at(now_ms - NEAR_MS))
    return over if until is None else min(over, start_of(until))
