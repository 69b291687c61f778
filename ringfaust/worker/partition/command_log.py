"""The log's lines about commands, consumers that timed out, and queues that are misplaced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ringfaust.processor.outbox import MISPLACED, TIMEOUT, LogEntry
from ringfaust.visible import visible

log = logging.getLogger(__name__)

_PERIOD_S = 10.0
_MOST_LINES = 5
"""Of one kind in a period. The events topic has all of them."""


@dataclass(slots=True)
class _Kind:
    since_s: float
    lines: int = 0
    dropped: int = 0


class CommandLog:
    """Tells of commands of one partition, at most a few lines of each kind in ten seconds."""

    def __init__(self, partition: int, now_s: Callable[[], float]) -> None:
        """`now_s`: the time in seconds, which never goes back."""
        self._partition = partition
        self._now_s = now_s
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def tell(self, entries: Iterable[LogEntry]) -> None:
        """Log what a committed batch has done."""
        for entry in entries:
            now_s = self._now_s()
            kind = self._kinds.setdefault((entry.asked, entry.reason), _Kind(now_s))
            dropped = 0
            if now_s - kind.since_s >= _PERIOD_S:
                dropped = kind.dropped
                self._kinds[entry.asked, entry.reason] = kind = _Kind(now_s)
            if kind.lines == _MOST_LINES:
                kind.dropped += 1
                continue
            kind.lines += 1
            self._line(entry, f" ({dropped:,} more before)" if dropped else "")

    def _line(self, entry: LogEntry, more: str) -> None:
        if entry.asked == TIMEOUT:
            log.info(
                "partition %d: detached consumer %r of %r: silent for longer than its "
                "consumer_timeout_ms; what it held is released%s",
                self._partition, entry.text, entry.queue, more,
            )  # fmt: skip
            return
        if entry.asked == MISPLACED:
            log.warning("%s%s", visible(entry.text), more)
            return
        about = f"{entry.asked} of {entry.queue!r}" if entry.queue else entry.asked
        if entry.reason:
            log.info(
                "partition %d: refused %s: %s: %s%s",
                self._partition, about, entry.reason, visible(entry.text), more,
            )  # fmt: skip
        else:
            text = f", {visible(entry.text)}" if entry.text else ""
            log.info("partition %d: operator: %s%s%s", self._partition, about, text, more)
