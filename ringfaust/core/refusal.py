"""How a handler refuses a command: with a typed reason, before it changes anything (R103)."""

from __future__ import annotations

from ringfaust.core.model import Refusal


class CommandRefused(Exception):
    """Raised by a handler that refuses its command and has changed nothing.

    Attributes:
        reason: the type of the refusal.
        about: the message id or consumer name it concerns.
        text: what is wrong, and what would be valid.
    """

    def __init__(self, reason: Refusal, about: str, text: str) -> None:
        self.reason = reason
        self.about = about
        self.text = text


class Idle(Exception):
    """Raised by a handler that had nothing to do, so that the step does not count."""


def bad(about: str, text: str) -> CommandRefused:
    """Return a refusal with the general reason `bad_command`."""
    return CommandRefused(Refusal.BAD_COMMAND, about, text)
