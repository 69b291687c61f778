"""What a worker says: its own words on stderr, and of its libraries only what needs attention."""

from __future__ import annotations

import logging
import time
from typing import Any

from ringfaust.errors import RingfaustError

_REPEAT_S = 10.0
"""How long the same complaint is kept back: a broker that is away is told 80 times a second."""


class RateLimitFilter(logging.Filter):
    """Lets a message of a library through once in a while, whatever its figures."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a repeat."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, RingfaustError):  # its text is for people, where it arose is not
            record.msg, record.args, record.exc_info = str(error), None, None
        if record.name.startswith("ringfaust"):
            return True
        now = time.monotonic()
        said = f"{record.name}:{record.msg}"
        if now - self._last.get(said, -_REPEAT_S) < _REPEAT_S:
            return False
        self._last[said] = now
        if error is not None and record.name.startswith("aiokafka"):
            # A connection broke; forty lines of where in the client tell nobody more.
            record.msg = f"{record.getMessage()}: {error!r}"
            record.args, record.exc_info = None, None
        return True


def logging_config(level: str) -> dict[str, Any]:
    """For logging.config.dictConfig. `level` is that of our own loggers."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(message)s"}},
        "filters": {"seldom": {"()": RateLimitFilter}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "plain",
                "filters": ["seldom"],
            }
        },
        "root": {"level": "WARNING", "handlers": ["stderr"]},
        "loggers": {
            "ringfaust": {"level": level.upper()},
            # Faust's services log their starting and stopping under the module of their class.
            "ringfaust.worker.transport": {"level": "WARNING"},
            "ringfaust.worker.consumer_thread": {"level": "WARNING"},
            # It calls each normal rebalance a warning, and the first start an error.
            "aiokafka.consumer.group_coordinator": {"level": "CRITICAL"},
        },
    }
