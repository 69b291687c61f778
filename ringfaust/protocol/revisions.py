"""The rows of the configuration topic: what was applied, by its number (R128)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ringfaust.core.catalog import Configuration
from ringfaust.protocol.records import OutgoingRecord

__all__ = ["PARTITION", "Configuration", "read_revisions", "revision_rows"]

PARTITION = 0
"""The partition that has all rows."""
KEPT = 100
"""How many revisions are kept, besides revision 0: the configuration before the first `apply`."""

_KEY = "revision/"


def read_revisions(rows: Iterable[tuple[bytes | None, bytes | None]]) -> list[Configuration]:
    """The revisions that rows have, in order; later rows win. Rows of others are skipped."""
    found: dict[str, Configuration] = {}
    for key, value in rows:
        name = (key or b"").decode(errors="replace")
        if not name.startswith(_KEY):
            continue
        if value is None:
            found.pop(name, None)
        elif (revision := _read(value)) is not None:
            found[name] = revision
    return sorted(found.values(), key=lambda each: each.revision)


def _read(value: bytes) -> Configuration | None:
    try:
        fields: dict[str, Any] = json.loads(value)
        return Configuration(
            int(fields["revision"]), fields["configuration"], fields.get("who", ""),
            fields.get("text", ""), fields.get("applied_ms", 0),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
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


def _row(topic: str, revision: int, value: bytes | None) -> OutgoingRecord:
    return OutgoingRecord(topic, value, f"{_KEY}{revision}".encode(), partition=PARTITION)
