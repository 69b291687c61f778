"""Gaps: records that can no longer be read although they were not processed (R112)."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple


class GapCause(StrEnum):
    """Why the records cannot be read."""

    DELETED = "deleted"
    """Retention removed them, or somebody deleted them."""
    TRUNCATED = "truncated"
    """The log lost its end: an unclean election of a broker, for example."""
    RECREATED = "recreated"
    """The topic was deleted, and another one with its name was created."""


_TEXTS = {
    GapCause.DELETED: "were deleted, by retention or by hand",
    GapCause.TRUNCATED: "are missing, because the log lost its end",
    GapCause.RECREATED: "are gone, because the topic was deleted and created again",
}


class Gap(NamedTuple):
    """Offsets of one partition of an input topic that cannot be read any more."""

    topic: str
    partition: int
    first: int
    last: int | None
    """None if nobody knows where the log ended."""
    cause: GapCause

    def __str__(self) -> str:
        """The gap in a sentence."""
        last = "the end" if self.last is None else self.last
        return (
            f"{self.topic}, partition {self.partition}: the records at offsets {self.first} to "
            f"{last} {_TEXTS[self.cause]}"
        )


def gap_line(gap: Gap, gaps: int, step: int, now_ms: int) -> str:
    """The gap's line on the events topic.

    Args:
        gap: what is missing.
        gaps: how many gaps this partition of the topic has had, including this one.
        step: of the partition's state; 0 if none belongs to it.
        now_ms: the time.
    """
    line = {
        "step": step, "event": "gap", "topic": gap.topic, "partition": gap.partition,
        "first": gap.first, "last": gap.last, "cause": str(gap.cause), "gaps": gaps,
        "text": str(gap), "time_ms": now_ms, "by": f"{gap.topic}/{gap.partition}/{gap.first}",
    }  # fmt: skip
    return json.dumps(line, separators=(",", ":"))
