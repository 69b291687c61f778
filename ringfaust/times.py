"""Times and ages as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(at_ms: int, *, timespec: str = "milliseconds") -> str:
    """A time for people, in UTC; `-` for 0."""
    if not at_ms:
        return "-"
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(sep=" ", timespec=timespec).removesuffix("+00:00") + "Z"


def age_text(ms: int) -> str:
    """A length of time for people, in two units at most."""
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
