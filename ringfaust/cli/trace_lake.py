"""`ringfaust trace --lake`: find a message's events in the lake, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ringfaust.cli.parts import require_modules
from ringfaust.client.lifecycles import Search, Trace
from ringfaust.errors import RingfaustError

_MOST_KEYED = 20
"""With a key: how many of its latest messages are traced."""


class NoLake(RingfaustError):
    """There is no table of the lake at that place. The text says what was looked for."""

    def __init__(self, path: str, reason: object) -> None:
        super().__init__(
            f"--lake: {path} cannot be read ({reason}): name the folder that "
            "`ringfaust spark lake --to` writes"
        )


def trace_lake(lake: str, target: str, *, key: str, since_ms: int) -> Trace:
    """Search the lake for a message.

    Args:
        lake: the folder or URI.
        target: its id, or its record as topic/partition/offset.
        key: instead of `target`, the key of its record: the latest messages with that key that
            were dispatched, evicted or dead.
        since_ms: search no earlier events, in ms since 1970.

    Raises:
        MissingExtra: deltalake or pyarrow is not installed.
        NoLake: the lake has no such table.
    """
    require_modules(("deltalake", "pyarrow"))
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.dataset as ds  # noqa: PLC0415 - as above

    records = _dataset(f"{lake}/silver/records")
    first_day = datetime.fromtimestamp(since_ms / 1000, UTC).date()
    recent = (ds.field("date") >= first_day) & (ds.field("time_ms") >= since_ms)
    wanted = [target] if target else []
    left_out: tuple[str, ...] = ()
    if key:
        with_key = (ds.field("date") >= first_day) & (ds.field("key") == key.encode())
        rows = _rows(records, with_key, ["id", "timestamp"])
        rows.sort(key=lambda row: row["timestamp"], reverse=True)
        wanted = list(dict.fromkeys(row["id"] for row in rows if row["id"]))
        if earlier := wanted[_MOST_KEYED:]:
            left_out = (f"earlier messages with this key: {len(earlier)}",)
        wanted = wanted[:_MOST_KEYED]
    search = Search(wanted)
    lines = _dataset(f"{lake}/silver/transitions")
    if target:
        of_record = recent & (ds.field("source") == target)
        wanted += [row["id"] for row in _rows(lines, of_record, ["id"]) if row["id"] != target]
    named = pa.array(wanted, pa.string())  # there may be none, which have no type by themselves
    about = (ds.field(name).isin(named) for name in ("id", "source", "about", "by"))
    first, *others = about
    for other in others:
        first = first | other
    found = _rows(lines, recent & first, ["partition", "offset", "line", "raw"])
    for row in sorted(found, key=lambda row: (row["partition"], row["offset"], row["line"])):
        search.take(json.loads(row["raw"]))
    redrives = {
        (row["queue"], row["sequence"]): int(dict(row["extra"] or ()).get("redrives", 0))
        for row in _rows(records, ds.field("id").isin(named), ["queue", "sequence", "extra"])
    }
    lifecycles = tuple(
        replace(each, redrives=redrives.get((each.queue, each.sequence), 0))
        for each in search.lifecycles()
    )
    return Trace(lifecycles, since_ms, len(found), "", left_out)


def _dataset(path: str) -> Any:
    from deltalake import DeltaTable  # noqa: PLC0415 - needs an extra
    from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415 - as above

    try:
        return DeltaTable(path).to_pyarrow_dataset()
    except (TableNotFoundError, DeltaError, OSError) as error:
        raise NoLake(path, type(error).__name__) from None


def _rows(dataset: Any, wanted: Any, columns: Iterable[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = dataset.to_table(columns=list(columns), filter=wanted).to_pylist()
    return rows
