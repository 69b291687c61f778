"""Distributed transactions (R81)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import limits
from tests.model.naive_consumers import Consuming
from tests.model.naive_parts import Refuse, Xid, need


class Deciding(Consuming):
    """What is done in distributed transactions."""

    def find_xid(self, name: str) -> Xid:
        for x in self.xids:
            if x.name == name:
                return x
        raise Refuse("bad_command")

    def open_xid(self, name: str) -> Xid:
        """One in which more can be done."""
        x = self.find_xid(name)
        need(not x.is_prepared)
        return x

    def own_xid(self, do: c.Send | c.Ack) -> Xid:
        """One in which its owner can do more."""
        x = self.open_xid(do.xid)
        need(do.owner == x.owner)
        return x

    def on_Begin(self, do: c.Begin) -> None:
        need(0 < len(do.xid) <= limits.NAME_CHARS)
        need(0 < do.timeout_ms <= limits.XID_TIMEOUT_MS)
        need(do.xid not in [x.name for x in self.xids])
        self.xids.append(Xid(do.xid, do.owner, self.now + do.timeout_ms))

    def on_Prepare(self, do: c.Prepare) -> None:
        self.open_xid(do.xid).is_prepared = True

    def on_Send(self, do: c.Send) -> None:
        if do.xid:
            need(do.owner != "")
            self.own_xid(do).operations.append(do)
            self.facts.append(("pending", do.queue, do.xid, do.id))
        else:
            self.send(do)

    def on_Commit(self, do: c.Commit) -> None:
        """What was done takes effect, in order, each as a command of its own (R80)."""
        x = self.find_xid(do.xid)
        need(x.is_prepared)
        self.xids.remove(x)
        for operation in x.operations:
            if isinstance(operation, c.Send):
                try:
                    self.send(operation)
                except Refuse as refusal:
                    self.facts.append(("refused", operation.queue, *refusal.args))
            else:
                q, h = operation
                self.expire(q)
                self.end(q, h)
                self.accept(q, h)
                self.dispatch(q)
                self.end_if_alone(q)
        self.facts.append(("decided", "", x.name, True))

    def on_RollbackXid(self, do: c.RollbackXid) -> None:
        self.undo(self.find_xid(do.xid))

    def on_Start(self, _: c.Start) -> None:
        """A host has opened the partition."""
        for x in list(self.xids):
            if not x.is_prepared:
                self.undo(x)

    def end_overdue(self) -> None:
        """What was not prepared in time is rolled back."""
        for x in list(self.xids):
            if not x.is_prepared and x.until <= self.now:
                self.undo(x)

    def undo(self, x: Xid) -> None:
        """What was settled in it returns, per queue as one set."""
        self.xids.remove(x)
        settled = [each for each in x.operations if not isinstance(each, c.Send)]
        for q in {id(q): q for q, _ in settled}.values():
            self.expire(q)
            self.requeue(q, [h for other, h in settled if other is q], "xid")
            self.dispatch(q)
            self.end_if_alone(q)
        self.facts.append(("decided", "", x.name, False))
