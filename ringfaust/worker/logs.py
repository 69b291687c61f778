"""Logging of a worker: its own lines on stderr, and only what needs attention of its libraries."""

from __future__ import annotations

import logging
import time
from typing import Any

from ringfaust.errors import RingfaustError

_REPEAT_S = 10.0
"""How long repeats are suppressed: libraries report an unreachable broker 80 times a second."""


class RateLimitFilter(logging.Filter):
    """Suppresses repeats of a library's message for a while, whatever its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a repeat."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, RingfaustError):  # its text is for people, its traceback is not
            record.msg, record.args, record.exc_info = str(error), None, None
        if record.name.startswith("ringfaust"):
            return True
        now = time.monotonic()
        message = f"{record.name}:{record.msg}"
        if now - self._last.get(message, -_REPEAT_S) < _REPEAT_S:
            return False
        self._last[message] = now
        if error is not None and record.name.startswith("aiokafka"):
            # A connection broke. Forty lines of traceback in the client would not help.
            record.msg = f"{record.getMessage()}: {error!r}"
            record.args, record.exc_info = None, None
        return True


def logging_config(level: str) -> dict[str, Any]:
    """A configuration for `logging.config.dictConfig`; `level`: of ringfaust's own loggers."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
        "filters": {"rate_limit": {"()": RateLimitFilter}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "plain",
                "filters": ["rate_limit"],
            }
        },
        "root": {"level": "WARNING", "handlers": ["stderr"]},
        "loggers": {
            "ringfaust": {"level": level.upper()},
            # Faust's services log their start and stop under the module of their class.
            "ringfaust.worker.transport": {"level": "WARNING"},
            "ringfaust.worker.consumer_thread": {"level": "WARNING"},
            "ringfaust.worker.vendor": {"level": "WARNING"},
            # It logs every normal rebalance as a warning, and the first start as an error.
            "aiokafka.consumer.group_coordinator": {"level": "CRITICAL"},
        },
    }
