"""Checks the commands of distributed transactions, and the sends made in them (R81)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import limits
from ringfaust.core.checks.refusal import bad
from ringfaust.core.model import Stage, XidRow
from ringfaust.core.transitions.xids import BEGIN, COMMIT, HOLD_SEND, PREPARE, UNDO, UNDO_ALL
from ringfaust.core.work import Work


def begin(work: Work, begin: c.Begin) -> list[Stage]:
    """Open a transaction (R81)."""
    name = begin.xid
    if not name or len(name) > limits.NAME_CHARS:
        raise bad(name, f"an xid has from 1 to {limits.NAME_CHARS} characters")
    names = [row.name for _, row in work.state.xids]
    if name in names:
        raise bad(name, "a transaction of that xid is open")
    if len(names) >= limits.XIDS:
        raise bad(name, f"{limits.XIDS} transactions are open in this partition")
    return [Stage(BEGIN, "", (name,))]


def prepare(work: Work, prepare: c.Prepare) -> list[Stage]:
    """Prepare a transaction: from now on it survives restarts (R81)."""
    number, row = find_open(work, prepare.xid)
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
    """Hold a send until its transaction is decided (R81)."""
    number, row = find_open(work, send.xid)
    return [Stage(HOLD_SEND, "", (number, row, send))]


def find_open(work: Work, xid: str) -> tuple[int, XidRow]:
    """A transaction that takes more operations."""
    number, row = _find(work, xid)
    if row.prepared:
        raise bad(xid, "it is prepared; now it can be committed or rolled back")
    if row.operations >= limits.XID_OPERATIONS:
        raise bad(xid, f"a transaction has at most {limits.XID_OPERATIONS} operations")
    return number, row


def _find(work: Work, xid: str) -> tuple[int, XidRow]:
    for number, row in work.state.xids:
        if row.name == xid:
            return number, row
    raise bad(xid, "no transaction of that xid is open")
