"""The events about a message, and its state after each (docs/protocol.md, Events). No PySpark."""

from __future__ import annotations

ENTRY_EVENTS = ("added", "scheduled")
"""With these a message enters its queue."""
EXIT_EVENTS = ("acked", "evicted", "expired", "dead", "removed", "moved_out", "lost")
"""With these a message leaves its queue."""
HELD_STATES = ("ready", "delivering", "scheduled")
"""States of a message that is in its queue."""
ENDED = "ended"
"""State of a message that has left its queue."""


def any_of(events: tuple[str, ...]) -> str:
    """SQL: whether a line is one of these events."""
    return f"event IN ({', '.join(map(repr, events))})"


STATE_AFTER = f"""
CASE WHEN event IN ('added', 'due') THEN 'ready'
     WHEN event = 'dispatched' THEN 'delivering'
     WHEN event = 'scheduled' THEN 'scheduled'
     WHEN event = 'returned' THEN CASE WHEN due_ms > 0 THEN 'scheduled' ELSE 'ready' END
     WHEN {any_of(EXIT_EVENTS)} THEN '{ENDED}' END
"""
"""SQL: the state of the message after a line about it; null if the line changes no state."""
