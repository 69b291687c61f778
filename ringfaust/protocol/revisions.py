"""The rows of the configuration topic: what was applied (R128), and the feature level (R129)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ringfaust.core import levels
from ringfaust.core.catalog import Configuration
from ringfaust.protocol.records import NOT_A_ROW, OutgoingRecord

__all__ = [
    "PARTITION", "Configuration", "ConfigurationLog", "RaisedLevel", "level_row", "read_log",
    "revision_rows",
]  # fmt: skip

PARTITION = 0
"""The partition that has all rows."""
KEPT = 100
"""How many revisions are kept, besides revision 0: the configuration before the first `apply`."""

_KEY = "revision/"
_LEVEL = "level"


class RaisedLevel(NamedTuple):
    """The feature level of an application (R129)."""

    level: int = levels.OLDEST
    who: str = ""
    """Who has raised it; empty: nobody has."""
    raised_ms: int = 0


class ConfigurationLog(NamedTuple):
    """What the topic has."""

    revisions: list[Configuration]
    """In order."""
    level: RaisedLevel


def read_log(rows: Iterable[tuple[bytes | None, bytes | None]]) -> ConfigurationLog:
    """Read rows; later ones win. Rows of others are skipped."""
    found: dict[str, Configuration] = {}
    level = RaisedLevel()
    for key, value in rows:
        name = (key or b"").decode(errors="replace")
        if name == _LEVEL:
            level = _read_level(value or b"") or level
        if not name.startswith(_KEY):
            continue
        if value is None:
            found.pop(name, None)
        elif (revision := _read(value)) is not None:
            found[name] = revision
    revisions = sorted(found.values(), key=lambda each: each.revision)
    return ConfigurationLog(revisions, level)


def _read_level(value: bytes) -> RaisedLevel | None:
    try:
        fields: dict[str, Any] = json.loads(value)
        who, raised_ms = fields.get("who", ""), fields.get("raised_ms", 0)
        return RaisedLevel(int(fields["level"]), who, raised_ms)
    except NOT_A_ROW:
        return None


def _read(value: bytes) -> Configuration | None:
    try:
        fields: dict[str, Any] = json.loads(value)
        return Configuration(
            int(fields["revision"]), fields["configuration"], fields.get("who", ""),
            fields.get("text", ""), fields.get("applied_ms", 0),
        )  # fmt: skip
    except NOT_A_ROW:
        return None


def revision_rows(topic: str, revisions: Iterable[Configuration]) -> list[OutgoingRecord]:
    """The rows that add revisions, and forget what is too old."""
    rows = []
    for each in revisions:
        fields: Mapping[str, Any] = {
            "revision": each.revision,
            "who": each.who,
            "text": each.text,
            "applied_ms": each.applied_ms,
            "configuration": each.document,
        }
        value = json.dumps(fields, separators=(",", ":")).encode()
        rows.append(_row(topic, each.revision, value))
        if each.revision > KEPT:
            rows.append(_row(topic, each.revision - KEPT, None))
    return rows


def level_row(topic: str, level: RaisedLevel) -> OutgoingRecord:
    """The row that says which feature level is in use."""
    value = json.dumps(level._asdict(), separators=(",", ":")).encode()
    return OutgoingRecord(topic, value, _LEVEL.encode(), partition=PARTITION)


def _row(topic: str, revision: int, value: bytes | None) -> OutgoingRecord:
    return OutgoingRecord(topic, value, f"{_KEY}{revision}".encode(), partition=PARTITION)
