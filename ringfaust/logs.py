"""Logs of workers and apps: what needs attention of the libraries, in lines for people."""

from __future__ import annotations

import logging
import time

from aiokafka.errors import KafkaConnectionError

from ringfaust.errors import RingfaustError
from ringfaust.visible import visible

_REPEAT_S = 10.0
"""How long repeats are suppressed: libraries report an unreachable broker 80 times a second."""
_SENDER = "aiokafka.producer.sender"
_NORMAL_S = 10.0
"""The first records of a new topic may find too few replicas in sync; the client sends them again.
Only errors that last longer are logged."""


_FOR_PEOPLE = (RingfaustError, KafkaConnectionError)


class RateLimitFilter(logging.Filter):
    """Suppresses repeats of a library's message for a while, whatever its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}
        self._few_replicas_since = 0.0
        self._few_replicas_until = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a repeat, and for what is normal."""
        error = record.exc_info[1] if record.exc_info else None
        if record.exc_info and error is None:  # Faust reports an error that it was told of so
            record.exc_info = None
            error = next((each for each in record.args or () if isinstance(each, Exception)), None)
        if isinstance(error, _FOR_PEOPLE):  # their text says it all, their traceback is for nobody
            record.msg, record.args, record.exc_info = str(error), None, None
        if record.name.startswith("ringfaust"):
            return True
        now = time.monotonic()
        if self._is_normal(record, now):
            return False
        message = f"{record.name}:{record.msg}"
        if now - self._last.get(message, -_REPEAT_S) < _REPEAT_S:
            return False
        self._last[message] = now
        if error is not None and record.name.startswith("aiokafka"):
            # A connection broke. Forty lines of traceback in the client would not help.
            record.msg = f"{record.getMessage()}: {error!r}"
            record.args, record.exc_info = None, None
        return True

    def _is_normal(self, record: logging.LogRecord, now: float) -> bool:
        if record.name != _SENDER or "NotEnoughReplicas" not in record.getMessage():
            return False
        if now - self._few_replicas_until > _NORMAL_S:
            self._few_replicas_since = now
        self._few_replicas_until = now
        return now - self._few_replicas_since < _NORMAL_S


class VisibleFormatter(logging.Formatter):
    """Lines of a log for people, in which the text of others does not steer the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and those of an error."""
        return visible(super().format(record), keeps_lines=True)
