"""Logging of a worker: its own lines on stderr, and only what needs attention of its libraries."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from ringfaust.logs import RateLimitFilter, VisibleFormatter
from ringfaust.visible import visible_json


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, `error`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return visible_json(line)


def logging_config(level: str, form: str) -> dict[str, Any]:
    """A configuration for `logging.config.dictConfig`.

    Args:
        level: of ringfaust's own loggers.
        form: of the lines, text or json.
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "text": {"()": VisibleFormatter, "format": "%(asctime)s %(levelname)s %(message)s"},
            "json": {"()": JsonFormatter},
        },
        "filters": {"rate_limit": {"()": RateLimitFilter}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": form,
                "filters": ["rate_limit"],
            }
        },
        "root": {"level": "WARNING", "handlers": ["stderr"]},
        "loggers": {
            "ringfaust": {"level": level.upper()},
            # Faust's services log their start and stop under the module of their class.
            "ringfaust.worker.faust.transport": {"level": "WARNING"},
            "ringfaust.worker.faust.consumer_thread": {"level": "WARNING"},
            "ringfaust.worker.faust.vendor": {"level": "WARNING"},
            # It logs every normal rebalance as a warning, and the first start as an error.
            "aiokafka.consumer.group_coordinator": {"level": "CRITICAL"},
        },
    }
