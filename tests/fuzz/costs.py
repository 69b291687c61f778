"""Random commands and records of heavy-tailed sizes, each transaction of which must stay small.

The sizes of bodies, names, counts and waits are drawn from a Pareto distribution: most are tiny, a
few are as large as they may be. The seed decides everything; a fault names it and the transaction.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ringfaust.core.catalog import Catalog
from ringfaust.core.selector import compile_selector
from ringfaust.protocol.records import FetchedRecord
from tests.fuzz.measured import Cost, Measured

MOST_BYTES = 900_000
"""Largest producer's record."""
TOPIC_BYTES = 2 * 1024 * 1024
"""What topics accept: `max_message_bytes` of topics/*.yaml."""
MOST_GROWN = 64 * 1024 * 1024
MOST_CPU_S = 1.0
STEPS = 400
CONSUMERS, SUBSCRIPTIONS, XIDS = 40, 300, 12
ADDRESS = "prices"
QUEUES: dict[str, dict[str, Any]] = {
    "ring": {"ring_size": 200},
    "artemis": {"ring_size": 200, "compat": "artemis"},
    "limited": {"max_bytes": 3_000_000, "when_full": "drop_oldest"},
    "lowest": {"max_messages": 50, "when_full": "drop_lowest_priority"},
    "windowed": {"window": 5, "window_lease": 1_000},
    "once": {"dedup_window": 60_000, "max_attempts": 2},
    "delayed": {"redelivery_delay": 1_000, "scheduled_when_full": "displace"},
}
SETTINGS = {"#": {"consumer_timeout": 20_000}}
ADDRESSES = {ADDRESS: {"retroactive_count": 50}}


class Fault(NamedTuple):
    """A transaction that cost too much."""

    seed: int
    what: str
    cost: Cost

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what}: {self.cost}"


def faults(seed: int, *, traces: bool, steps: int = STEPS) -> Iterator[Fault]:
    """Play the history of a seed.

    Args:
        seed: decides the history.
        traces: measure memory; else CPU time. To trace memory takes time.
        steps: how long the history is.
    """
    compile_selector("x > 1")  # the first one builds the parser
    rng = random.Random(seed)
    it = Measured(
        Catalog(QUEUES, SETTINGS, ADDRESSES), most_bytes=MOST_BYTES, traces=traces,
        batch=rng.choice([1, 50, 500]),
    )  # fmt: skip
    history = History(rng, it)
    for _ in range(steps):
        history.step()
        for cost in it.costs:
            yield from (Fault(seed, what, cost) for what in _exceeded(cost, traces=traces))
        it.costs.clear()
        it.events.clear()
        it.replies.clear()


def _exceeded(cost: Cost, *, traces: bool) -> Iterator[str]:
    if cost.largest_record > TOPIC_BYTES:
        yield f"a record of {cost.largest_record:,} bytes"
    if cost.largest_row > TOPIC_BYTES:
        yield f"a row of {cost.largest_row:,} bytes"
    if cost.grown_bytes > MOST_GROWN:
        yield f"{cost.grown_bytes:,} bytes of memory"
    if not traces and cost.cpu_s > MOST_CPU_S:
        yield f"{cost.cpu_s:.1f} s"


def heavy(rng: random.Random, most: int) -> int:
    """A size from 0 to `most`; a tenth of them are above a thousandth of it."""
    return min(int(rng.paretovariate(0.35)) - 1, most)


class History:
    """Draws the steps of one history, and plays them."""

    def __init__(self, rng: random.Random, it: Measured) -> None:
        self._rng = rng
        self._it = it
        self._ids = 0
        self._queues = [*QUEUES]
        self._steps: list[tuple[Callable[[], None], float]] = [
            (self._send, 30), (self._burst, 8), (self._attach, 10), (self._settle, 20),
            (self._consume, 8), (self._operate, 8), (self._subscribe, 8), (self._ask, 5),
            (self._xid, 5), (self._wait, 8), (self._crash, 1),
        ]  # fmt: skip

    def step(self) -> None:
        """One command, record, burst or wait."""
        draws, weights = zip(*self._steps, strict=True)
        self._rng.choices(draws, weights)[0]()

    # --- producers -------------------------------------------------------------------------------

    def _message(self) -> FetchedRecord:
        rng = self._rng
        headers = [("ringfaust-id", self._id().encode())]
        for name, share, most in (
            ("priority", 0.2, 9), ("delay-ms", 0.2, 5_000), ("ttl-ms", 0.2, 5_000),
        ):  # fmt: skip
            if rng.random() < share:
                headers.append((f"ringfaust-{name}", b"%d" % rng.randint(0, most)))
        if rng.random() < 0.2:
            headers.append(("ringfaust-group", self._name("g", 200).encode()))
        if rng.random() < 0.1:
            headers.append(("ringfaust-xid", self._an_xid().encode()))
            headers.append(("ringfaust-xid-owner", b"o"))
        body = bytes(heavy(rng, MOST_BYTES - 60_000))
        count = heavy(rng, 2_000)
        headers += [(f"h{number}", b"v" * heavy(rng, 20)) for number in range(count)]
        return self._it.message(self._target(), body, headers)

    def _send(self) -> None:
        self._it.take([self._message()])

    def _burst(self) -> None:
        """Many of one kind, as when a producer catches up."""
        self._it.take([self._message() for _ in range(heavy(self._rng, 300))])

    # --- consumers -------------------------------------------------------------------------------

    def _say(self, kind: str, **fields: Any) -> None:
        if self._rng.random() < 0.7:
            fields["reply"] = self._name("r", 200)
        self._it.say(kind, **fields)

    def _consuming(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "consumer": self._a_consumer(), "credit": heavy(rng, 100_000),
            "priority": rng.choice([0, 0, heavy(rng, 1 << 30)]),
            "ack_mode": rng.choice(["individual", "client", "auto", "dups_ok", "none"]),
            "session": rng.choice(["", "", "s"]),
            "selector": rng.choice(["", "", "", "priority > 3", "x IN ('" + "a" * 4_000 + "')"]),
        }  # fmt: skip

    def _attach(self) -> None:
        self._say("attach", queue=self._a_queue(), **self._consuming())

    def _subscribe(self) -> None:
        rng = self._rng
        fields = self._consuming()
        if rng.random() < 0.9:
            fields["subscription"] = self._a_subscription()
        self._say("subscribe", address=ADDRESS, shared=rng.random() < 0.5, **fields)

    def _consume(self) -> None:
        kind = self._rng.choice(["credit", "heartbeat", "detach", "recover", "rollback"])
        if kind == "rollback":
            self._say(kind, session="s")
            return
        more = {"add": heavy(self._rng, 10_000)} if kind == "credit" else {}
        self._say(kind, queue=self._a_queue(), consumer=self._a_consumer(), **more)

    def _settle(self) -> None:
        """Settle up to a thousand deliveries, most of which exist."""
        rng, it = self._rng, self._it
        queue = it.processor.state.queue(self._a_queue())
        if queue is None or not queue.consumers:
            return
        consumer = rng.choice([*queue.consumers.values()])
        kind = rng.choice(["ack", "ack", "release", "reject"])
        is_in_xid = kind == "ack" and rng.random() < 0.1
        held = [(number, id_) for id_, numbers in consumer.held.items() for number in numbers]
        records = [
            it.command(
                kind, queue=queue.name, consumer=consumer.name, message=id_, delivery=number,
                **({"text": "t" * heavy(rng, 2_000)} if kind == "reject" else {}),
                **({"xid": self._an_xid(), "owner": "o"} if is_in_xid else {}),
            )
            for number, id_ in held[: heavy(rng, 1_000) + 1]
        ]  # fmt: skip
        it.take(records)

    # --- operators -------------------------------------------------------------------------------

    def _operate(self) -> None:
        rng, queue = self._rng, self._a_queue()
        kind = rng.choice(
            ["configure", "purge", "pause", "resume", "create_queue", "delete_queue"]
            + ["remove", "move", "cancel_scheduled", "deliver_now", "configure_address"]
        )
        if kind == "configure_address":
            settings = {"retroactive_count": heavy(rng, 1_000)}
            self._say(kind, address=ADDRESS, settings=settings)
            return
        fields: dict[str, Any] = {"queue": queue}
        if kind == "configure":
            fields["settings"] = {rng.choice(["ring_size", "max_messages"]): heavy(rng, 10_000) + 1}
        elif kind == "create_queue":
            fields = {"queue": f"{ADDRESS}::{self._a_subscription()}", "settings": {}}
        elif kind in ("pause", "resume"):
            fields["what"] = "dispatch"
        elif kind not in ("purge", "delete_queue"):
            fields["message"] = f"m{rng.randrange(self._ids + 1)}"
        if kind == "move":
            fields["to"] = self._a_queue()
        self._say(kind, **fields)

    def _ask(self) -> None:
        rng = self._rng
        kind = rng.choice(["list", "browse", "list_queues", "list_xids"])
        fields: dict[str, Any] = {"reply": "r"}
        if kind in ("list", "browse"):
            fields["queue"] = self._a_queue()
        if kind == "list_queues" and rng.random() < 0.5:
            fields["pattern"] = ".".join(["#", "*"] * (heavy(rng, 50) + 1))
        self._it.say(kind, **fields)

    def _xid(self) -> None:
        kind = self._rng.choice(["begin", "begin", "prepare", "prepare", "commit", "rollback_xid"])
        more = {"owner": "o", "timeout_ms": 60_000} if kind == "begin" else {}
        self._say(kind, xid=self._an_xid(), **more)

    # --- time ------------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._it.now_ms += heavy(self._rng, 60_000)
        self._it.tick()

    def _crash(self) -> None:
        self._it.reopen()

    # --- names -----------------------------------------------------------------------------------

    def _id(self) -> str:
        self._ids += 1
        return f"m{self._ids}" + "\u20ac" * heavy(self._rng, 500)

    def _name(self, first: str, most: int) -> str:
        """A name; some are long, and their characters take six bytes of JSON."""
        return first + "\u20ac" * heavy(self._rng, most)

    def _a_consumer(self) -> str:
        number = self._rng.randrange(CONSUMERS)
        return f"k{number}" + "\u20ac" * (200 if number % 7 == 0 else 0)

    def _a_subscription(self) -> str:
        number = self._rng.randrange(SUBSCRIPTIONS)
        return f"s{number}" + "\u20ac" * (200 if number % 5 == 0 else 0)

    def _an_xid(self) -> str:
        return f"x{self._rng.randrange(XIDS)}"

    def _a_queue(self) -> str:
        address = self._it.processor.state.address(ADDRESS)
        if address is not None and address.members and self._rng.random() < 0.3:
            return self._rng.choice(address.members)
        return self._rng.choice(self._queues)

    def _target(self) -> str:
        return ADDRESS if self._rng.random() < 0.15 else self._rng.choice(self._queues)
