"""What a period of an audit hands to the next one, so that no period is read twice.

A balance holds what is open: messages that the queues hold, inputs without an outcome, and the
records or lines whose counterpart was written after the end of the period. Its size depends on what
the queues hold, not on the length of the history.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ringfaust.spark.audit.offsets import CannotAudit
from ringfaust.spark.errors import SPARK_ERRORS
from ringfaust.spark.files import HadoopFolder, literal

TopicPositions = dict[tuple[str, int], int]
"""By topic and partition: an offset."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The rows of a balance."""

    lines: DataFrame
    """The first and the last line of each open message, and undecided sends: `AuditData.lines`."""
    inputs: DataFrame
    """Inputs without an outcome: `AuditData.inputs`."""
    digests: DataFrame
    """Inputs whose message is open: `AuditData.inputs`."""
    commands: DataFrame
    """Commands whose result may be in the next period: `AuditData.commands`."""
    outputs: DataFrame
    """Records whose event may be in the next period: `AuditData.outputs`."""
    expected: DataFrame
    """Events whose record may be in the next period: result of `match.expected`."""
    queues: DataFrame
    """partition, queue, highest (its last sequence number), and the counts since the beginning."""
    partitions: DataFrame
    """partition, step and delivery (the highest numbers)."""
    places: DataFrame
    """topic, partition, place (of the last output record in the events)."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What is open at the end of a period, and where the next one begins."""

    frames: Frames
    next: TopicPositions
    """The first offset of the next period."""
    since_ms: int | None = None
    """The time at which a closed day ended: no record of the next one has an earlier timestamp.
    None: the period ended at offsets."""
    day: date | None = None
    """The closed day."""
    faults: dict[str, dict[str, int]] = field(default_factory=dict)
    """The closed days until then that had faults, with the number of findings of each kind."""


class ClosedDays:
    """The balances of closed days, in the folder `state/audit` of a lake.

    A file for each day, written last, says that it is closed. It contains digests of the balance's
    rows, and of the file of the day before, so that a balance that was changed is not used.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = f"{root.rstrip('/')}/state/audit"
        self._folder = HadoopFolder(spark, f"{self._root}/closed")

    def days(self) -> list[date]:
        """The closed days, in order."""
        return [date.fromisoformat(str(number)) for number in sorted(self._folder.numbers())]

    def save(self, day: date, balance: Balance, opening: Balance | None) -> Balance:
        """Close a day. Returns the balance, as it is stored."""
        for name in _FRAMES:
            frame: DataFrame = getattr(balance.frames, name)
            frame.coalesce(_FILES).write.mode("overwrite").parquet(self._path(day, name))
        frames = self._frames(day)
        about: dict[str, object] = {
            "next": by_topic(balance.next),
            "since_ms": balance.since_ms,
            "faults": balance.faults,
            "rows": _digests(frames),
            "opening": None,
        }
        if opening and opening.day:
            digest = self._read(opening.day)["digest"]
            about["opening"] = {"day": str(opening.day), "digest": digest}
        about["digest"] = _text_digest(about)
        self._folder.write_text(f"{day:%Y%m%d}", json.dumps(about, indent=1))
        return replace(balance, frames=frames, day=day)

    def read_to(self) -> TopicPositions:
        """Up to which offsets the closed days have read the topics; empty if no day is closed."""
        days = self.days()
        return _positions(self._read(days[-1])) if days else {}

    def load(self, day: date) -> Balance:
        """The balance at the end of a closed day.

        Raises:
            CannotAudit: a part of it is missing or is not what was stored.
        """
        about = self._read(day)
        try:
            frames = self._frames(day)
            digests = _digests(frames)
        except SPARK_ERRORS as error:
            raise self._unusable(day, "is incomplete: its rows cannot be read") from error
        for name, digest in digests.items():
            if digest != about["rows"].get(name):
                raise self._unusable(day, f"was changed: its {name} are not what the audit stored")
        before = about["opening"]
        if before and self._read(date.fromisoformat(before["day"]))["digest"] != before["digest"]:
            text = f"does not continue the balance of {before['day']}, which was closed again"
            raise self._unusable(day, text)
        return Balance(frames, _positions(about), about["since_ms"], day, about["faults"])

    def _read(self, day: date) -> dict[str, Any]:
        """The file of a closed day."""
        try:
            text = self._folder.read_text(f"{day:%Y%m%d}")
            if text is None:
                raise self._unusable(day, "is missing")
            about = json.loads(text)
            digest = about.pop("digest")
        except (Py4JJavaError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unusable(day, "was changed: its file is damaged") from error
        if digest != _text_digest(about):
            raise self._unusable(day, "was changed: its file is not what the audit stored")
        return {**about, "digest": digest}

    def _unusable(self, day: date, text: str) -> CannotAudit:
        return CannotAudit(
            f"the closing balance of {day} {text} ({self._root}). Audit that day again, and the "
            f"days after it: --since {day}"
        )

    def _frames(self, day: date) -> Frames:
        folders = {name: literal(self._path(day, name)) for name in _FRAMES}
        return Frames(**{name: self._spark.read.parquet(each) for name, each in folders.items()})

    def _path(self, day: date, name: str) -> str:
        return f"{self._root}/balances/{day:%Y%m%d}/{name}"


_FRAMES = [each.name for each in fields(Frames)]
_FILES = 8
"""Most files of a part of a balance."""


def by_topic(positions: TopicPositions) -> dict[str, dict[int, int]]:
    """As JSON has them."""
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in positions.items():
        found.setdefault(topic, {})[partition] = offset
    return found


def _positions(about: dict[str, Any]) -> TopicPositions:
    return {(topic, int(n)): at for topic, of in about["next"].items() for n, at in of.items()}


def _digests(frames: Frames) -> dict[str, str]:
    """The number of rows of each part, and a digest that does not depend on their order."""
    parts = []
    for name in _FRAMES:
        frame: DataFrame = getattr(frames, name)
        # Spark's hash leaves out nulls, so each column has a flag as well.
        flags = [F.col(column).isNull() for column in frame.columns]
        row = F.xxhash64(*frame.columns, *flags)
        total = F.sum(row.cast("decimal(38,0)")).cast("string")
        text = F.concat_ws("/", F.count("*").cast("string"), total)
        parts.append(frame.agg(text.alias("digest")).select(F.lit(name).alias("name"), "digest"))
    return {row["name"]: row["digest"] for row in reduce(DataFrame.unionAll, parts).collect()}


def _text_digest(about: dict[str, Any]) -> str:
    text = json.dumps(json.loads(json.dumps(about)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def joined(new: DataFrame, opening: Balance | None, name: str) -> DataFrame:
    """The rows of a period and those that the one before has left open."""
    return new if opening is None else new.unionByName(getattr(opening.frames, name))


def kept(balance: Balance) -> Balance:
    """The balance with frames that no longer depend on the period's data."""
    frames = {name: getattr(balance.frames, name).localCheckpoint() for name in _FRAMES}
    return replace(balance, frames=Frames(**frames))
