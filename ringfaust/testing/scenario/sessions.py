"""The client's part of local transactions (R80): the pending operations of each open session.

A session lives in its client and is independent of the worker. The client buffers the operations of
a session until it commits or rolls back. So operations take effect in the order of the commits, and
no read_committed reader has to wait for an open Kafka transaction.
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
        """Open a session's transaction; refused if it is open, which then stays open."""
        if name in self._pending:
            return [_refused(name, Refusal.BAD_COMMAND)]
        self._pending[name] = []
        return []

    def buffer(self, command: c.Command, name: str) -> list[ObservedEffect] | None:
        """Buffer or refuse a command.

        Args:
            command: the command.
            name: its session; empty if it has none.

        Returns:
            The refusal, or an empty list if the command is buffered. None if the caller has to
            execute it now.
        """
        if name and name not in self._pending:
            return [_refused(name, Refusal.BAD_COMMAND)]
        if isinstance(command, c.Ack | c.Release | c.Reject) and self._is_settled(command):
            return [_refused(command.message, Refusal.STALE_DELIVERY)]
        if not name:
            return None
        self._pending[name].append(command)
        return []

    def end(self, name: str) -> list[c.Command] | None:
        """Close a session and return its pending operations; None if it was not open."""
        return self._pending.pop(name, None)

    def _is_settled(self, settle: c.Ack | c.Release | c.Reject) -> bool:
        """Whether the delivery is settled in an open transaction (R103)."""
        return any(
            isinstance(each, c.Ack) and each[:3] == settle[:3]
            for pending in self._pending.values()
            for each in pending
        )


def rollback_of(session: str, pending: Sequence[c.Command]) -> c.Rollback:
    """Return the command that rolls back a session with these pending operations."""
    return c.Rollback(session, tuple(each for each in pending if isinstance(each, c.Ack)))


def unknown_session(name: str) -> list[ObservedEffect]:
    """Return the refusal of a commit or rollback of a session that is not open (R103)."""
    return [_refused(name, Refusal.BAD_COMMAND)]


def _refused(about: str, reason: Refusal) -> ObservedEffect:
    return ObservedEffect("refused", about, reason=reason)
