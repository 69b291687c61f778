"""What checks have in common: refusals with a typed reason (R103), and what a selector costs."""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.model import Refusal
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.opening import find
from ringfaust.core.work import Work


class CommandRefused(Exception):
    """Raised by a check that refuses its command.

    Attributes:
        reason: the type of the refusal.
        about: the message id or consumer name it concerns.
        text: what is wrong, and what would be valid.
    """

    def __init__(self, reason: Refusal, about: str, text: str) -> None:
        self.reason = reason
        self.about = about
        self.text = text


def bad(about: str, text: str) -> CommandRefused:
    """Return a refusal with the general reason `bad_command`."""
    return CommandRefused(Refusal.BAD_COMMAND, about, text)


def beyond(about: str, text: str) -> CommandRefused:
    """Return a refusal because there would be too many of something (R120)."""
    return CommandRefused(Refusal.LIMIT, about, text)


def known_queue(work: Work, name: str) -> Queue:
    """The queue of that name.

    Raises:
        CommandRefused: there is none.
    """
    queue = find(work, name)
    if queue is None:
        text = f"no queue {name!r} in this partition"
        raise CommandRefused(Refusal.UNKNOWN_QUEUE, name, text)
    return queue


def weigh_selector(work: Work, text: object) -> None:
    """Count what it costs to read a selector, whether it is valid or not (R121)."""
    if isinstance(text, str):
        work.weigh(limits.SELECTOR_COST_BYTES * min(len(text), limits.SELECTOR_CHARS))
