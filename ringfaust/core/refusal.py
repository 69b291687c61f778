"""How a command says no: with a reason of the contract, before anything has changed (R103)."""

from __future__ import annotations

from ringfaust.core.model import Refusal


class Refused(Exception):
    """Carries a refusal out of a command that has changed nothing yet."""

    def __init__(self, reason: Refusal, about: str, text: str) -> None:
        self.reason = reason
        self.about = about
        self.text = text


class Idle(Exception):
    """There was nothing to do, so no step was made."""


def bad(about: str, text: str) -> Refused:
    """A refusal that has no reason of its own."""
    return Refused(Refusal.BAD_COMMAND, about, text)
