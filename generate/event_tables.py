"""The tables of events in docs/protocol.md, from their declaration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ringfaust.protocol.lifecycle import EVENTS, Event, Field, Kind, Move

PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"
BEGIN, END = "<!-- begin of what `make generate` writes -->\n", "<!-- end -->\n"

_TYPES = {
    Kind.TEXT: "text",
    Kind.LONG: "number ≥ 0",
    Kind.INT: "number ≥ 0",
    Kind.SIGNED: "number",
    Kind.FLAG: "true or false",
    Kind.SETTINGS: "object",
    Kind.COUNTS: "object",
}


def tables() -> str:
    """The tables of events and of fields."""
    return "\n".join([
        "| event | what happened | state of its message | additional fields |",
        "|---|---|---|---|",
        *map(_event_row, EVENTS.values()),
        "",
        "| field | type | what it says |",
        "|---|---|---|",
        *_field_rows(),
        "",
    ])  # fmt: skip


def page() -> str:
    """The text of the page with the present tables."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def _event_row(event: Event) -> str:
    moves = ", otherwise ".join(_move(event, move) for move in event.moves)
    fields = ", ".join(map(_field, event.fields))
    return f"| `{event.name}` | {event.what} | {moves} | {fields} |"


def _move(event: Event, move: Move) -> str:
    changed = f"{' or '.join(move.before)} → {move.after}"
    if move.reasons:
        return f"{changed} if `reason` is {' or '.join(f'`{each}`' for each in move.reasons)}"
    if not move.unless:
        return changed
    is_optional = any(each.name == move.unless and each.optional for each in event.fields)
    condition = f"without `{move.unless}`" if is_optional else f"if `{move.unless}` is 0"
    return f"{changed} {condition}"


def _field(field: Field) -> str:
    note = f" ({field.note})" if field.note else ""
    return f"`{field.name}`{'?' if field.optional else ''}{note}"


def _field_rows() -> Iterator[str]:
    seen = {field.name: field for event in EVENTS.values() for field in event.fields}
    for name, field in seen.items():
        yield f"| `{name}` | {_TYPES[field.kind]} | {field.meaning} |"
