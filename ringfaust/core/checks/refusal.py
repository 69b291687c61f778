"""What checks have in common: refusals with a typed reason (R103), and what a selector costs."""

from __future__ import annotations

from ringfaust.core import limits
from ringfaust.core.address import address_of
from ringfaust.core.model import Refusal
from ringfaust.core.queue import Queue
from ringfaust.core.selector import check_selector
from ringfaust.core.transitions.opening import find
from ringfaust.core.work import Work
from ringfaust.errors import BadSelector


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


class InTurn(Exception):
    """Raised by the check of a command that waits for what the first use of its queue has left.

    That may be more than fits into a transaction (R90, R114), and end what the command is about.
    """


def check_turn(work: Work) -> None:
    """Check that nothing comes before a command that has opened its queues.

    Raises:
        InTurn: something does.
    """
    if work.stages:
        raise InTurn


def bad(about: str, text: str) -> CommandRefused:
    """Return a refusal with the general reason `bad_command`."""
    return CommandRefused(Refusal.BAD_COMMAND, about, text)


def beyond(about: str, text: str) -> CommandRefused:
    """Return a refusal because there would be too many of something (R120)."""
    return CommandRefused(Refusal.LIMIT, about, text)


def check_given_selector(work: Work, about: str, text: str) -> None:
    """Check a selector that a command gives, and count what reading it costs (R15, R121).

    Empty text is none.

    Raises:
        CommandRefused: it is no condition, or never true.
    """
    work.weigh(limits.SELECTOR_COST_BYTES * min(len(text), limits.SELECTOR_CHARS))
    try:
        if text:
            check_selector(text)
    except BadSelector as error:
        raise CommandRefused(Refusal.BAD_SELECTOR, about, str(error)) from None


def known_queue(work: Work, name: str) -> Queue:
    """The queue of that name.

    Raises:
        CommandRefused: there is none, or its address cannot have it.
    """
    queue = find(work, name)
    if queue is None:
        address = work.state.address(address_of(name))
        if address is not None and address.overfull:
            raise beyond(name, address.overfull)
        text = f"no queue {name!r} in this partition"
        raise CommandRefused(Refusal.UNKNOWN_QUEUE, name, text)
    return queue
