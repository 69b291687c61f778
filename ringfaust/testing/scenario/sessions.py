"""The client's part of local transactions (R80): the pending operations of each open session.

A session lives in its client and is independent of the worker. The client buffers the operations of
a session until it commits or rolls back. So operations take effect in the order of the commits, and
no read_committed reader has to wait for an open Kafka transaction.
"""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core.model import Refusal
from ringfaust.testing.scenario.player import ObservedEffect


class SessionHost:
    """The part of a host that keeps what its sessions have not committed yet."""

    def __init__(self) -> None:
        self._pending: dict[str, list[c.Command]] = {}

    def begin(self, session: str) -> list[ObservedEffect]:
        """Open a session's transaction; refused if it is open, which then stays open."""
        if session in self._pending:
            return [_refused(session, Refusal.BAD_COMMAND)]
        self._pending[session] = []
        return []

    def commit(self, session: str) -> list[ObservedEffect]:
        """Let the session's operations take effect (R80); refused if it is not open (R103)."""
        pending = self._pending.pop(session, None)
        if pending is None:
            return [_refused(session, Refusal.BAD_COMMAND)]
        return self._commit(pending)

    def rollback(self, session: str) -> list[ObservedEffect]:
        """Drop the session's operations, and return what its consumers hold (R80)."""
        pending = self._pending.pop(session, None)
        if pending is None:
            return [_refused(session, Refusal.BAD_COMMAND)]
        acked = tuple(each for each in pending if isinstance(each, c.Ack))
        effects = self._roll_back(c.Rollback(session, acked), pending)
        # The engine does not know a session without consumers, which has nothing to return.
        return [each for each in effects if each.kind != "refused"]

    def _commit(self, pending: list[c.Command]) -> list[ObservedEffect]:
        raise NotImplementedError

    def _roll_back(self, rollback: c.Rollback, pending: list[c.Command]) -> list[ObservedEffect]:
        raise NotImplementedError

    def _buffered(self, command: c.Command, session: str) -> list[ObservedEffect] | None:
        """Buffer or refuse a command.

        Args:
            command: the command.
            session: its session; empty if it has none.

        Returns:
            The refusal, or an empty list if the command is buffered. None if the caller has to
            execute it now.
        """
        if session and session not in self._pending:
            return [_refused(session, Refusal.BAD_COMMAND)]
        if isinstance(command, c.Ack | c.Release | c.Reject) and self._is_settled(command):
            return [_refused(command.message, Refusal.STALE_DELIVERY)]
        if not session:
            return None
        self._pending[session].append(command)
        return []

    def _is_settled(self, settle: c.Ack | c.Release | c.Reject) -> bool:
        """Whether the delivery is settled in an open transaction (R103)."""
        return any(
            isinstance(each, c.Ack) and each[:3] == settle[:3]
            for pending in self._pending.values()
            for each in pending
        )


def _refused(about: str, reason: Refusal) -> ObservedEffect:
    return ObservedEffect("refused", about, reason=reason)
