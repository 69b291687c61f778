"""Feature levels: what the stored rows and records of an application may contain (R129).

An application uses one level. A worker supports some, so that it can run beside workers of the
version before it, and `ringfaust upgrade finish` raises the level once all support the next one.
"""

from __future__ import annotations

from typing import NamedTuple

from ringfaust.errors import UnsupportedLevel


class FeatureLevel(NamedTuple):
    """A level, and what it brings."""

    number: int
    since: str
    """The first version of ringfaust that supports it."""
    brings: str


LEVELS = (
    FeatureLevel(1, "0.2.0", "what version 0.2.0 writes and reads"),
    FeatureLevel(
        2, "0.3.0",
        "the CLOCK row, in version 2, has the level: versions without levels refuse the state; "
        "what a session returns to queues with compat: artemis may take several transactions, and "
        "what a declared queue first gets of the messages that its address retains; "
        "the row of a queue says since when each setting is set live",
    ),
)  # fmt: skip
"""The levels that this version supports, without a gap."""
CUTS_MORE = 2
"""The level from which on the rest of these commands may be stored."""
DATES_SETTINGS = 2
"""The level from which on the time of settings that are set live is stored."""
OLDEST = LEVELS[0].number
"""The level of a new partition: every version with levels supports it."""
NEWEST = LEVELS[-1].number


def check_level(name: str, what: str, level: int) -> None:
    """Refuse a level that this version does not support.

    Args:
        name: of this process, for the error.
        what: what uses it.
        level: its number.

    Raises:
        UnsupportedLevel: it does not.
    """
    if not OLDEST <= level <= NEWEST:
        raise UnsupportedLevel(name, what, level, OLDEST, NEWEST)
