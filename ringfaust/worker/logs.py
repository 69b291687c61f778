"""Logging of a worker: its own lines on stderr, and only what needs attention of its libraries."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from ringfaust.logs import RateLimitFilter, VisibleFormatter
from ringfaust.visible import visible_json


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, `error`.

    Args:
        process: which of several processes this is; then each line has `process`, too.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = {"process": int(process)} if process else {}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._process,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return visible_json(line)


def logging_config(level: str, form: str, process: str = "") -> dict[str, Any]:
    """A configuration for `logging.config.dictConfig`.

    Args:
        level: of ringfaust's own loggers.
        form: of the lines, text or json.
        process: the number of this one of several processes.
    """
    which = f"process {process}: " if process else ""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "text": {
                "()": VisibleFormatter,
                "format": f"%(asctime)s %(levelname)s {which}%(message)s",
            },
            "json": {"()": JsonFormatter, "process": process},
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
            "ringfaust.worker.faust.membership": {"level": "WARNING"},
            "ringfaust.worker.faust.vendor": {"level": "WARNING"},
            # It logs every normal rebalance as a warning, and the first start as an error.
            "aiokafka.consumer.group_coordinator": {"level": "CRITICAL"},
        },
    }
