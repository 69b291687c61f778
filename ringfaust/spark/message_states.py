"""SQL about the states of messages, as `ringfaust.protocol.lifecycle` declares them. No PySpark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ringfaust.protocol.lifecycle import ABOUT_MESSAGES, EVENTS, NEW, Event, Move


def any_of(names: Iterable[str]) -> str:
    """SQL: whether a line is one of these events."""
    return f"event IN ({_texts(names)})"


def _texts(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _applies(event: Event, move: Move) -> str:
    """Whether a line is of the event, and makes the move if it makes none before it."""
    is_event = f"event = '{event.name}'"
    if move.reasons:
        return f"{is_event} AND reason IN ({_texts(move.reasons)})"
    return f"{is_event} AND coalesce({move.unless}, 0) = 0" if move.unless else is_event


def _may_follow(event: Event, move: Move) -> str:
    """Whether the move may follow the state `was`."""
    if move.before == (NEW,):
        return "was IS NULL"
    same = " AND delivery = was_delivery" if event.ends_named_delivery(move) else ""
    return f"was IN ({_texts(move.before)}){same}"


def _cases() -> Iterator[str]:
    """The events that always lead to one state by that state, then the others."""
    alike: dict[str, list[str]] = {}
    others = []
    for event in map(EVENTS.__getitem__, ABOUT_MESSAGES):
        after = {move.after for move in event.moves}
        if len(after) == 1:
            alike.setdefault(after.pop(), []).append(event.name)
        else:
            others += [f"WHEN {_applies(event, m)} THEN '{m.after}'" for m in event.moves]
    for state, names in alike.items():
        yield f"WHEN {any_of(names)} THEN '{state}'"
    yield from others


STATE_AFTER = f"CASE {' '.join(_cases())} END"
"""SQL: the state of the message after a line about it; null if the line changes no state."""

_MOVES = [(EVENTS[name], move) for name in ABOUT_MESSAGES for move in EVENTS[name].moves]
_LEGAL = " ".join(f"WHEN {_applies(*each)} THEN {_may_follow(*each)}" for each in _MOVES)
IS_LEGAL = f"coalesce(CASE {_LEGAL} END, false)"
"""SQL: whether a line may follow the state `was` of its message (null: none) and its delivery
`was_delivery`."""
