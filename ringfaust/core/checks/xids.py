"""Checks the commands of distributed transactions, and the sends made in them (R81)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import limits
from ringfaust.core.checks.refusal import CommandRefused, bad, beyond
from ringfaust.core.model import Stage, XidRow
from ringfaust.core.transitions.xids import BEGIN, COMMIT, HOLD_SEND, PREPARE, UNDO, UNDO_ALL
from ringfaust.core.work import Work


def begin(work: Work, begin: c.Begin) -> list[Stage]:
    """Open a transaction (R81)."""
    name = begin.xid
    if not name or len(name) > limits.NAME_CHARS:
        raise bad(name, f"an xid has from 1 to {limits.NAME_CHARS} characters")
    if len(begin.owner) > limits.NAME_CHARS:
        raise bad(name, f"owner has at most {limits.NAME_CHARS} characters")
    if not 0 < begin.timeout_ms <= limits.XID_TIMEOUT_MS:
        most = limits.XID_TIMEOUT_MS
        raise bad(name, f"timeout_ms must be from 1 to {most}, not {begin.timeout_ms}")
    rows = [row for _, row in work.state.xids]
    work.weigh(limits.ROW_COST_BYTES * len(rows))
    if name in [row.name for row in rows]:
        raise bad(name, "a transaction of that xid is open")
    if len(rows) >= limits.XIDS:
        raise beyond(name, f"{limits.XIDS} transactions are open in this partition")
    if sum([row.owner == begin.owner for row in rows]) >= limits.XIDS_OF_OWNER:
        raise beyond(name, f"this owner has {limits.XIDS_OF_OWNER} transactions open here")
    return [Stage(BEGIN, "", (begin,))]


def prepare(work: Work, prepare: c.Prepare) -> list[Stage]:
    """Prepare a transaction: from now on it survives restarts (R81)."""
    number, row = _find_open(work, prepare.xid)
    return [Stage(PREPARE, "", (number, row))]


def commit(work: Work, commit: c.Commit) -> list[Stage]:
    """Apply the operations in the order made, each as a command of its own (R81)."""
    number, row = _find(work, commit.xid)
    if not row.prepared:
        raise bad(row.name, "it is not prepared; prepare it first, or roll it back")
    return [Stage(COMMIT, "", (number, row.name))]


def rollback(work: Work, rollback: c.RollbackXid) -> list[Stage]:
    """Forget the sends, and return what was settled (R81)."""
    number, row = _find(work, rollback.xid)
    return [Stage(UNDO, "", (number, row.name))]


def start(work: Work, _: c.Start) -> list[Stage]:
    """Roll back what was not prepared when the host stopped, in order of begin (R81)."""
    is_any = any(not row.prepared for _, row in work.state.xids)
    return [Stage(UNDO_ALL, "")] if is_any else []


def send(work: Work, send: c.Send) -> list[Stage]:
    """Hold a send until its transaction is decided (R81).

    An ack shows by being on the control topic that its sender may act here. A send does not.
    """
    number, row = find_own(work, send.xid, send.owner)
    if not row.owner:
        raise bad(send.xid, "it was begun without an owner, so no record can take part")
    return [Stage(HOLD_SEND, "", (number, row, send))]


def find_own(work: Work, xid: str, owner: str) -> tuple[int, XidRow]:
    """A transaction that takes more operations of this owner."""
    number, row = _find_open(work, xid)
    if owner != row.owner:
        raise bad(xid, "another owner began it; only that one takes part")
    if row.operations >= limits.XID_OPERATIONS:
        raise too_many_operations(xid)
    return number, row


def _find_open(work: Work, xid: str) -> tuple[int, XidRow]:
    """A transaction that is not prepared."""
    number, row = _find(work, xid)
    if row.prepared:
        raise bad(xid, "it is prepared; now it can be committed or rolled back")
    return number, row


def too_many_operations(xid: str) -> CommandRefused:
    """Return a refusal of what would be one too many."""
    return beyond(xid, f"a transaction has at most {limits.XID_OPERATIONS} operations")


def _find(work: Work, xid: str) -> tuple[int, XidRow]:
    for number, row in work.state.xids:
        if row.name == xid:
            return number, row
    raise bad(xid, "no transaction of that xid is open")
