"""One history on both sides: each operation, then what it did and left, compared."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ringfaust.core import commands as c
from ringfaust.protocol.records import Payload
from tests.oracle.artemis import Artemis
from tests.oracle.broker_xml import imported_fields, write_broker_xml
from tests.oracle.clock import Clock
from tests.oracle.comparing import Difference, Tally, in_time
from tests.oracle.engine import FACTS, QUEUE, Engine, Seen, fields_of
from tests.oracle.naive import Naive
from tests.oracle.operations import PAST, History, Operation

SLOT_MS = 100
SLOWEST_MS = 3_200
PAYLOAD = Payload(None, b"", (), "oracle/0/1")
"""How many operations made sense, and how many facts of each kind there were."""
_names = count(1)


def play(
    artemis: Artemis | Naive,
    history: History,
    tally: Tally | None = None,
    *,
    imported: int | None = None,
) -> Difference | None:
    """Play a history; the first difference, or None.

    Args:
        artemis: the other side.
        history: to be played.
        tally: to be added to if there is no difference.
        imported: both sides are configured by a broker.xml drawn from this seed, ours by an import
            and `compat: artemis`, which an import sets only for a ring of 0.

    Raises:
        Late: even with long slots this machine is too slow.
    """

    def played(slot_ms: int) -> Difference | None:
        game = Game(artemis, history, slot_ms, imported)
        try:
            difference = game.play()
        finally:
            artemis.ask("end")
        if tally is not None and difference is None:
            tally.update(game.tally)
        return difference

    return in_time(SLOT_MS, SLOWEST_MS, played)


class AtFault(Exception):
    """Artemis broke its own order: what follows cannot be compared (end of section 13)."""


class Game:
    """Both sides at their queue, and what their client knows."""

    def __init__(
        self, artemis: Artemis | Naive, history: History, slot_ms: int, imported: int | None
    ) -> None:
        self.artemis = artemis
        self.history = history
        settings = history.settings
        self.clock = Clock(slot_ms, artemis)
        self.delay_ms = settings.delay_ms(slot_ms)
        self.sessions: dict[str, str] = {}
        """By attached consumer."""
        self.expiries: set[int] = set()
        name = f"shop.q{next(_names)}"
        if imported is None:
            self.engine = Engine(fields_of(settings, slot_ms))
            artemis.ask("queue", name, settings.ring_size, settings.max_attempts, self.delay_ms)
        else:
            with TemporaryDirectory(prefix="ringfaust-oracle-") as folder:
                path = Path(folder, "broker.xml")
                write_broker_xml(path, name, settings, self.delay_ms, random.Random(imported))
                self.engine = Engine(imported_fields(path, name) | {"compat": "artemis"})
                artemis.ask("configured", name, path)
        self.opened: set[str] = set()
        """Sessions."""
        self.tally: Tally = Counter()

    def play(self) -> Difference | None:
        """All operations, until the sides differ."""
        for number, operation in enumerate(self.history.operations, 1):
            self.clock.settle()
            method = getattr(self, f"_{operation.kind}")
            try:
                found = method(operation)
            except AtFault:
                self.tally["cut short by Artemis' fault"] += 1
                return None
            if found is not None:
                return Difference(number, operation, "Artemis", *found)
        return None

    # --- one operation ---------------------------------------------------------------------------

    def _send(self, send: Operation) -> _Found:
        if self._is_a_race(1):
            return None
        due_ms = 0
        if send.due:
            due_ms = (
                self.artemis.now_ms() - 1000 if send.due == PAST else self.clock.after(send.due)
            )
        expires_ms = self.clock.after(send.ttl, 0.9) if send.ttl else 0
        if expires_ms:
            self.expiries.add(expires_ms)
        words = ("send", send.name, send.priority, due_ms, expires_ms)
        return self._both(
            words,
            c.Send(
                QUEUE,
                send.name,
                self.artemis.now_ms(),
                send.priority,
                due_ms=due_ms,
                expires_at_ms=expires_ms,
                payload=PAYLOAD,
            ),
        )

    def _burst(self, burst: Operation) -> _Found:
        commits = burst.name == "commit"
        if commits and self._is_a_race(len(burst.sends)):
            return None
        words = [word for send in burst.sends for word in send]
        sends = [
            c.Send(QUEUE, name, self.artemis.now_ms(), priority, payload=PAYLOAD)
            for name, priority in burst.sends
        ]
        return self._both(("burst", burst.name, *words), *(sends if commits else ()))

    def _is_a_race(self, sends: int) -> bool:
        """Does the outcome depend on when Artemis' executor runs (end of section 13)?

        So it is with several sends, or one to a ring of none, while a consumer waits; and with
        several while a consumer is there who would meet an expired message.
        """
        queue = self.engine.queue
        if "dispatch" in queue.paused or not queue.consumers:
            return False
        if queue.has_open_consumer():
            return sends > 1 or queue.spec.ring_size == 0
        return sends > 1 and any(
            0 < message.expires_at_ms <= self.artemis.now_ms() for message in queue.in_order()
        )

    def _attach(self, attach: Operation) -> _Found:
        if attach.name in self.sessions:
            return None
        session = attach.session or f"own-{attach.name}"
        if session not in self.opened:
            self.artemis.ask("session", session, "tx" if attach.session else "auto")
            self.opened.add(session)
        self.sessions[attach.name] = session
        return self._both(
            ("attach", attach.name, session, attach.number, attach.priority),
            c.Attach(QUEUE, attach.name, attach.number, attach.priority, session=session),
        )

    def _credit(self, credit: Operation) -> _Found:
        if credit.name not in self.sessions:
            return None
        return self._both(
            ("credit", credit.name, credit.number), c.Credit(QUEUE, credit.name, credit.number)
        )

    def _ack(self, ack: Operation) -> _Found:
        if (message := self._held(ack)) is None:
            return None
        command = c.Ack(QUEUE, ack.name, message)
        session = self.sessions[ack.name]
        if session.startswith("tx"):
            self.engine.pending.setdefault(session, []).append(command)
            return self._both(("ack", ack.name, message))
        return self._both(("ack", ack.name, message), command)

    def _release(self, release: Operation) -> _Found:
        if (message := self._held(release)) is None:
            return None
        return self._both(
            ("release", release.name, message), c.Release(QUEUE, release.name, message), parks=True
        )

    def _reject(self, reject: Operation) -> _Found:
        if (message := self._held(reject)) is None:
            return None
        return self._both(("reject", reject.name, message), c.Reject(QUEUE, reject.name, message))

    def _commit(self, commit: Operation) -> _Found:
        acks = self.engine.pending.pop(commit.name, None)
        return self._both(("commit", commit.name), *acks) if acks else None

    def _rollback(self, rollback: Operation) -> _Found:
        if rollback.name not in self.sessions.values():
            return None
        acks = tuple(self.engine.pending.pop(rollback.name, ()))
        return self._both(
            ("rollback", rollback.name), c.Rollback(rollback.name, acked=acks), parks=True
        )

    def _recover(self, recover: Operation) -> _Found:
        session = self.sessions.get(recover.name, "")
        if not session.startswith("own"):
            return None
        return self._both(("rollback", session), c.Recover(QUEUE, recover.name), parks=True)

    def _close(self, close: Operation) -> _Found:
        session = self.sessions.get(close.name)
        acks = self.engine.pending.get(session or "", ())
        if session is None or any(ack.consumer == close.name for ack in acks):
            return None
        del self.sessions[close.name]
        return self._both(("close", close.name), c.Detach(QUEUE, close.name))

    def _resize(self, resize: Operation) -> _Found:
        return self._both(
            ("resize", resize.number), c.Configure(QUEUE, {"ring_size": resize.number})
        )

    def _pause(self, _: Operation) -> _Found:
        return self._both(("pause",), c.Pause(QUEUE, "dispatch"))

    def _resume(self, _: Operation) -> _Found:
        return self._both(("resume",), c.Resume(QUEUE, "dispatch"))

    def _deliver_now(self, deliver: Operation) -> _Found:
        scheduled = [message.id for _, message in self.engine.queue.scheduled]
        if not scheduled:
            return None
        message = scheduled[deliver.number % len(scheduled)]
        return self._both(("deliver_now", message), c.DeliverNow(QUEUE, message))

    def _advance(self, advance: Operation) -> _Found:
        until_ms = self.clock.after(advance.number) if self.clock.awaited else 0
        for at_ms in sorted(at for at in self.clock.awaited if at <= until_ms):
            self.expiries.discard(at_ms)
            if found := self._both(("until", at_ms), c.Sweep(), at_ms=at_ms):
                return found
        self.clock.slot += advance.number
        return None

    def _held(self, settle: Operation) -> str | None:
        held = self.engine.held(settle.name)
        return held[settle.number % len(held)] if held else None

    # --- both sides ------------------------------------------------------------------------------

    def _both(
        self, words: tuple[object, ...], *commands: c.Command, at_ms: int = 0, parks: bool = False
    ) -> _Found:
        """Ask Artemis, then the engine at the time of Artemis' answer; what differs."""
        if parks and self.delay_ms:
            self.clock.space(self.delay_ms)
        known = self.clock.awaited
        answer = self.artemis.ask(*words)
        dues = {due_ms for _, due_ms in answer["scheduled"]}
        self.clock.awaited = dues | self.expiries
        if answer["at_fault"]:
            raise AtFault
        # What is scheduled now may have come due before the answer, which then does not name it.
        began_ms = answer["began"]
        sent = {each.due_ms for each in commands if isinstance(each, c.Send)}
        coming = {due_ms for due_ms in sent if due_ms > began_ms}
        if parks and self.delay_ms:
            coming.add(began_ms + self.delay_ms)
        self.clock.check(answer["ended"], known | self.clock.awaited | coming, since_ms=at_ms)
        time_ms = at_ms or answer["began"]
        if parks and (parked := dues - known):
            time_ms = min(parked) - self.delay_ms
        theirs, ours = _seen(answer), self.engine.play(list(commands), time_ms)
        self.tally["operations"] += 1
        for kind in FACTS:
            self.tally[kind] += len(getattr(theirs, kind))
        for field in fields(Seen):
            one, other = getattr(theirs, field.name), getattr(ours, field.name)
            if one != other:
                return field.name, one, other
        return None


_Found = tuple[str, object, object] | None
"""Which field of `Seen` differs: what it is for Artemis, and for the engine."""


def _seen(answer: dict[str, Any]) -> Seen:
    facts: dict[str, list[Any]] = {kind: [] for kind in FACTS}
    for kind, *rest in answer["facts"]:
        facts[kind].append(tuple(rest) if kind == "delivered" else rest[0])
    return Seen(
        **facts,
        ready=answer["ready"],
        delivering=answer["delivering"],
        scheduled=sorted((due_ms, name) for name, due_ms in answer["scheduled"]),
        counts=answer["counts"],
    )
