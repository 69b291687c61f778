"""What is played: operations as plain values, and histories of them drawn from a seed.

An operation says little enough to make sense in any state, so that a history stays one when some
of it is left out: "the second message that c1 holds", not "message m7". What makes no sense at
its turn is skipped (see `sides`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

PAST = -1
"""A delivery time that has passed."""


class Settings(NamedTuple):
    """The queue of one history."""

    ring_size: int
    max_attempts: int
    redelivery_delay: int
    """In slots, the unit of time (see `clock`), and a bit; 0 for none."""

    def delay_ms(self, slot_ms: int) -> int:
        """The delay in ms: no whole slots, or it would often end when something sent is due."""
        return int((self.redelivery_delay + 0.37) * slot_ms) if self.redelivery_delay else 0


class Operation(NamedTuple):
    """One step. Which fields matter depends on `kind`."""

    kind: str
    name: str = ""
    """Of a consumer or a session; the id of what is sent."""
    session: str = ""
    number: int = 0
    """How much credit, which of the held or scheduled, what ring size, how many slots."""
    priority: int = 0
    due: int = 0
    """Slots from now; `PAST`; 0 for a plain send."""
    ttl: int = 0
    """Slots and a half from now; 0 for never."""
    sends: tuple[tuple[str, int], ...] = ()
    """(id, priority) of what one transaction sends."""

    def __str__(self) -> str:
        given = {name: value for name, value in self._asdict().items() if value and name != "kind"}
        return " ".join([self.kind, *(f"{name}={value}" for name, value in given.items())])


class History(NamedTuple):
    """What is played on both sides."""

    settings: Settings
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        rows = [f"  {number:2}  {step}" for number, step in enumerate(self.operations, 1)]
        return "\n".join([f"  queue {self.settings}", *rows])


CONSUMERS = ("c1", "c2", "c3", "c4")
TRANSACTED = ("tx1", "tx2")


def history(seed: int, length: int) -> History:
    """The history of a seed."""
    return _Writer(random.Random(seed)).write(length)


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sent = 0
        self.priorities = rng.choice([(4,), (4,), (4, 9), (0, 4, 9), tuple(range(10))])
        self.has_ttl = rng.random() < 0.4
        self.has_schedule = rng.random() < 0.7
        self.has_transactions = rng.random() < 0.6
        self.consumers = CONSUMERS[: rng.choice([1, 2, 2, 3, 4])]

    def write(self, length: int) -> History:
        rng = self.rng
        settings = Settings(
            ring_size=rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 6, -1]),
            max_attempts=rng.choice([10, 10, -1, 2, 3]),
            redelivery_delay=rng.choice([0, 0, 0, 1, 2]),
        )
        has_time = self.has_schedule or self.has_ttl or settings.redelivery_delay > 0
        kinds: dict[Callable[[], Operation], int] = {
            self._send: 30,
            self._attach: 14,
            self._settle: 20,
            self._advance: 7 if has_time else 1,
            self._close: 5,
            self._recover: 4,
            self._credit: 3,
            self._resize: 3,
            self._burst: 3,
            self._pause: 1,
            self._resume: 2,
            self._decide: 8 if self.has_transactions else 0,
            self._deliver_now: 2 if self.has_schedule else 0,
        }
        drawn = rng.choices(list(kinds), list(kinds.values()), k=length)
        return History(settings, tuple(draw() for draw in drawn))

    def _send(self) -> Operation:
        rng = self.rng
        due = rng.choice([0, 0, 0, 1, 1, 2, 3, PAST]) if self.has_schedule else 0
        ttl = rng.choice([0, 0, 1, 1, 2, 3]) if self.has_ttl else 0
        return Operation("send", self._id(), priority=rng.choice(self.priorities), due=due, ttl=ttl)

    def _burst(self) -> Operation:
        rng = self.rng
        sends = tuple((self._id(), rng.choice(self.priorities)) for _ in range(rng.randint(1, 4)))
        return Operation("burst", rng.choice(["commit", "commit", "rollback"]), sends=sends)

    def _attach(self) -> Operation:
        rng = self.rng
        transacted = self.has_transactions and rng.random() < 0.5
        return Operation(
            "attach", rng.choice(self.consumers),
            session=rng.choice(TRANSACTED) if transacted else "",
            number=rng.choice([0, 1, 1, 2, 3, 5]), priority=rng.choice([0, 0, 0, 0, 1, 5]),
        )  # fmt: skip

    def _settle(self) -> Operation:
        kind = self.rng.choice(["ack", "ack", "ack", "release", "reject"])
        return Operation(kind, self._consumer(), number=self.rng.randint(0, 5))

    def _decide(self) -> Operation:
        return Operation(
            self.rng.choice(["commit", "rollback", "rollback"]), self.rng.choice(TRANSACTED)
        )

    def _close(self) -> Operation:
        return Operation("close", self._consumer())

    def _recover(self) -> Operation:
        return Operation("recover", self._consumer())

    def _credit(self) -> Operation:
        return Operation("credit", self._consumer(), number=self.rng.randint(1, 3))

    def _resize(self) -> Operation:
        return Operation("resize", number=self.rng.choice([1, 2, 3, 4, 5, 6, -1, 0, -2]))

    def _advance(self) -> Operation:
        return Operation("advance", number=self.rng.randint(1, 3))

    def _deliver_now(self) -> Operation:
        return Operation("deliver_now", number=self.rng.randint(0, 3))

    def _pause(self) -> Operation:
        return Operation("pause")

    def _resume(self) -> Operation:
        return Operation("resume")

    def _consumer(self) -> str:
        return self.rng.choice(self.consumers)

    def _id(self) -> str:
        self.sent += 1
        return f"m{self.sent}"
