"""The time now, and times and ages as people read them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

_UNITS_MS = {
    "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999: no calendar of Python has a later time."""
_LENGTH = re.compile(r"(\d{1,15}) ?([a-z]*)", re.ASCII)


def wall_ms() -> int:
    """The time now, in ms since 1970."""
    return time.time_ns() // 1_000_000


def length_ms(text: str) -> int:
    """Read a length of time, such as `500ms`, `5s`, `10min`, `1h` or `2d`, in ms.

    Raises:
        ValueError: it is none, or has no unit.
    """
    found = _LENGTH.fullmatch(text)
    if found is None or found[2] not in _UNITS_MS:
        trouble = "has no unit" if found and not found[2] else "is not a length of time"
        raise ValueError(f"{text!r} {trouble}; write it like 500ms, 5s, 10min, 1h or 2d")
    return int(found[1]) * _UNITS_MS[found[2]]


def moment_ms(text: str, now_ms: int) -> int:
    """Read a time: so long ago (`1h`), `yesterday`, or ISO 8601. Without a zone it is UTC.

    Args:
        text: what a person wrote. `yesterday` is its beginning.
        now_ms: the time now, in ms since 1970.

    Returns:
        ms since 1970; 0 for what is before, and the end of 9999 for what is later.

    Raises:
        ValueError: it is none of these, such as a number without a unit.
    """
    if text == "yesterday":
        return now_ms - now_ms % _UNITS_MS["d"] - _UNITS_MS["d"]
    if _LENGTH.fullmatch(text) and not text.isdecimal():
        return max(now_ms - length_ms(text), 0)
    try:
        at = datetime.fromisoformat("" if text.isdecimal() else text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return min(max(int(at.timestamp() * 1000), 0), _LAST_MS)
    except (ValueError, OverflowError):
        trouble = "has no unit" if text.isdecimal() else "is not a time"
        example = "1h, yesterday or 2026-01-31T17:05"
        raise ValueError(f"{text!r} {trouble}; write it like {example}") from None


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
