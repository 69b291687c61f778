"""The client's part of a local transaction (R80): what is pending in each open session.

A session lives in its client, whatever becomes of the worker. This client keeps the operations of
a session until the decision: what is not committed is nobody else's affair. The order of commits
is then the order in which operations take effect, and on Kafka no reader waits for an undecided
transaction (a read_committed reader gets nothing that stands behind one).
"""

from __future__ import annotations

from collections.abc import Sequence

from ringfaust.core import commands as c
from ringfaust.core.model import Refusal
from ringfaust.testing.scenario.player import ObservedEffect


class PendingSessions:
    """The open sessions of one client."""

    def __init__(self) -> None:
        self._pending: dict[str, list[c.Command]] = {}

    def begin(self, name: str) -> list[ObservedEffect]:
        """Open a session's transaction; one that is open goes on, and the command is refused."""
        if name in self._pending:
            return [_refused(name, Refusal.BAD_COMMAND)]
        self._pending[name] = []
        return []

    def take(self, command: c.Command, name: str) -> list[ObservedEffect] | None:
        """Keep or refuse a command; None: it is to be done now."""
        if name and name not in self._pending:
            return [_refused(name, Refusal.BAD_COMMAND)]
        if isinstance(command, c.Ack | c.Release | c.Reject) and self._is_settled(command):
            return [_refused(command.message, Refusal.STALE_DELIVERY)]
        if not name:
            return None
        self._pending[name].append(command)
        return []

    def end(self, name: str) -> list[c.Command] | None:
        """Close a session; what was pending in it, or None if it was not open."""
        return self._pending.pop(name, None)

    def _is_settled(self, settle: c.Ack | c.Release | c.Reject) -> bool:
        """Is that delivery settled in an open transaction (R103)?"""
        return any(
            isinstance(kept, c.Ack) and kept[:3] == settle[:3]
            for pending in self._pending.values()
            for kept in pending
        )


def rollback_of(session: str, pending: Sequence[c.Command]) -> c.Rollback:
    """The command that takes a session back; `pending` is what was done in it."""
    return c.Rollback(session, tuple(each for each in pending if isinstance(each, c.Ack)))


def unknown_session(name: str) -> list[ObservedEffect]:
    """The answer to a decision about a session that is not open (R103)."""
    return [_refused(name, Refusal.BAD_COMMAND)]


def _refused(about: str, reason: Refusal) -> ObservedEffect:
    return ObservedEffect("refused", about, reason=reason)
