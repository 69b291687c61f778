"""What `ringfaust spark maintain` is asked to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringfaust.errors import BadSetting
from ringfaust.spark.lake.tables import TABLES

RETAINED = tuple(table.name for table in TABLES.values() if table.day)
"""The tables that can have a retention: those with a folder for each day."""
_LEAST_HOURS = 1
_HOURS = {"h": 1, "d": 24}


@dataclass(frozen=True, slots=True)
class MaintainRequest:
    """The options of the command line."""

    lake: str
    """Folder or URI."""
    retention: Mapping[str, int]
    """By table: how many days it keeps, besides today. Other tables keep everything."""
    deleted_file_retention_hours: int
    """How long files stay that are no longer part of a table."""


def read_options(
    lake: str, retention: Sequence[str], deleted_file_retention: str
) -> MaintainRequest:
    """Check the options of the command line, before Spark starts.

    Raises:
        BadSetting: an option cannot be parsed, or names a table that has no days.
    """
    days: dict[str, int] = {}
    for text in retention:
        table, _, length = text.partition("=")
        if table not in RETAINED:
            advice = f"use TABLE=DAYS, such as bronze=30d; tables: {', '.join(RETAINED)}"
            raise BadSetting("retention", text, advice)
        if not re.fullmatch(r"[1-9]\d{0,4}d", length):
            raise BadSetting(f"retention of {table}", length, "use a number of days, such as 30d")
        days[table] = int(length[:-1])
    return MaintainRequest(lake, days, _read_hours(deleted_file_retention))


def _read_hours(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,4})([hd])", text)
    if not found:
        advice = f"use a number and h or d, at least {_LEAST_HOURS}h, such as 12h or 7d"
        raise BadSetting("deleted-file-retention", text, advice)
    return int(found[1]) * _HOURS[found[2]]
