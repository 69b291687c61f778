"""Close the days of a lake, one after the other; a closed day is not read again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date

from pyspark.sql import SparkSession

from ringfaust.errors import BadSetting
from ringfaust.protocol.records import Role
from ringfaust.spark.audit.balance import Balance, ClosedDays
from ringfaust.spark.audit.offsets import CannotAudit, TopicOffsets, offsets_at
from ringfaust.spark.audit.period import NEAR_MS, PeriodReader, day_at, end_of, start_of
from ringfaust.spark.audit.verdict import AuditRequest, Verdict, reconcile
from ringfaust.spark.lake.stream import OUTPUTS, read_to


@dataclass(frozen=True, slots=True)
class DayVerdict:
    """The result of auditing one closed day."""

    day: date
    verdict: Verdict
    closing: Balance
    """What the next day begins with."""


class LakeDays:
    """The days (UTC) of a lake."""

    def __init__(
        self, spark: SparkSession, request: AuditRequest, lake: str, offsets: TopicOffsets
    ) -> None:
        self._spark = spark
        self._request = request
        self._lake = lake
        self._offsets = offsets
        self._closed = ClosedDays(spark, lake)
        self._reader = PeriodReader(spark, request, offsets, lake)

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
        """Check that the lake has all events and outputs before a time.

        Raises:
            CannotAudit: it has not read some yet. They would be missing in the balance.
        """
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
            verdict = reconcile(self._request, data, self._offsets, closes=True)
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
