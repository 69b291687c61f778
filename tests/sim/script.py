"""The steps of a seed: plain values, each of which is valid after any others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.sim.plan import (
    ADDED,
    ADDRESS,
    CREATED,
    DECLARED,
    MEMBERS,
    PARTITIONS,
    REMOVABLE,
    SELECTORS,
    Plan,
    partition_for,
    random_settings,
)

Step = tuple[Any, ...]
STEPS = 220
CONSUMERS = ("k1", "k2", "k3")
TOPICS = ("control", "hop", "keyed", "timed")
OWNERS = ("o",) * 8 + ("stranger", "")
WORKERS = 2
POISON_SHARE = 0.02
"""Of the steps that write, those whose first record nobody can decide."""
FORBID_SHARE, ORDER_SHARE = 0.003, 0.08
"""Of the steps that come after one about a permission, or an order once something is wrong."""
STANDBY_SHARE = 0.2
"""Of the steps that come after one of a standby."""
VERSION_SHARE = 0.015
"""Of the steps that come after one that changes a worker's version."""
PAUSES = (0, 0, 1, 2, 3, 3, 7)
"""After how many a commit fails; after 3 it has taken effect, and 4 are those of the one before."""
DISKS = ("keep", "keep", "tail", "tail", "lose", "other cluster", "other application")
"""What a worker finds after a crash."""


class Script:
    """Draws the steps. It remembers only names: ids, consumers, transactions."""

    def __init__(self, rng: random.Random, plan: Plan) -> None:
        self._rng = rng
        self._plan = plan
        self._queues = [*plan.queues] * 4 + [CREATED]
        if plan.addresses:
            self._queues += MEMBERS
        self._targets = [*plan.queues] * 4 + [CREATED] + [*plan.addresses] * 5
        self._sent: list[tuple[str, str]] = [("m0", CREATED)]
        """Id and destination of each message."""
        self._delayed = self._sent[:]
        self._again = random.Random(repr(plan))
        """Draws what is sent again; other seeds stay what they were."""
        self._repeatable: list[tuple[str, str, dict[str, Any]]] = []
        self._together = random.Random(f"{plan!r} together")
        """Draws how many deliveries one record acks; other seeds stay what they were."""
        self._owners = random.Random(f"{plan!r} owners")
        """Draws who takes part in transactions, and how long; other seeds stay what they were."""
        self._standbys = random.Random(f"{plan!r} standbys")
        """Draws who follows a changelog; other seeds stay what they were."""
        self._operators = random.Random(f"{plan!r} operators")
        """Draws what is applied (R128); other seeds stay what they were."""
        self._stops = random.Random(f"{plan!r} stops")
        """Draws what stops partitions, and the orders to them (R123)."""
        self._versions = random.Random(f"{plan!r} versions")
        """Draws when a worker changes its version (R129); other seeds stay what they were."""
        self._has_fault = False
        self._numbers = 0
        self._units = PARTITIONS + plan.far_partitions
        self._open: list[str] = []
        self._has_xids = rng.random() < 0.4
        weights = {**_WEIGHTS, "xid": 14 if self._has_xids else 0.2}
        self._draws = [(getattr(self, f"_{name}"), weight) for name, weight in weights.items()]

    def steps(self, count: int = STEPS) -> list[Step]:
        draws, weights = zip(*self._draws, strict=True)
        drawn = [draw() for draw in self._rng.choices(draws, weights, k=count)]
        return [each for step in drawn for each in self._with_others(step)]

    def _with_others(self, step: Step) -> Iterator[Step]:
        yield from self._standby()
        yield from self._changed_version()
        yield from self._operated()
        yield from self._stopping(step)

    def _standby(self) -> Iterator[Step]:
        """Now and then a worker follows the changelog of a partition that another one has."""
        rng = self._standbys
        if rng.random() < STANDBY_SHARE:
            number, worker = rng.randrange(PARTITIONS), rng.randrange(WORKERS)
            yield ("standby", number, worker, rng.choice((1, 5, 99)))

    def _changed_version(self) -> Iterator[Step]:
        """Now and then a worker is replaced by one of the version before, or of this one."""
        rng = self._versions
        if rng.random() < VERSION_SHARE:
            yield ("change_version", rng.random() < 0.7, rng.choice(("keep", "tail", "lose")))

    def _operated(self) -> Iterator[Step]:
        """Now and then an operator applies a configuration or raises the level (R128, R129)."""
        rng, where = self._operators, partition_for(ADDED)
        weights = [*_OPERATED.values(), 1 - sum(_OPERATED.values())]
        what = rng.choices([*_OPERATED, ""], weights)[0]
        if what == "send":
            fields = {"id": f"f{rng.randrange(1_000)}", "priority": rng.choice((1, 9))}
            yield ("send", rng.choice(("keyed", REMOVABLE, "far")), ADDED, fields)
        elif what == "attach":
            command = {"type": what, "queue": ADDED, "consumer": "k1", "credit": rng.choice((0, 2))}
            yield ("say", where, command, 1)
        elif what == "raise_level":
            yield (what,)
        elif what == "apply":
            yield (what, *self._changed(rng), rng.random() < 0.7, rng.random() < 0.9)

    def _stopping(self, step: Step) -> Iterator[Step]:
        """Now and then nobody can decide what the step writes, or somebody gives an order."""
        rng, index = self._stops, self._stops.randrange(self._units)
        share = ORDER_SHARE if self._has_fault else ORDER_SHARE / 10
        if step[0] in _WRITING and rng.random() < POISON_SHARE:
            self._has_fault = True
            yield ("poison", step)
            return
        yield step
        if rng.random() < FORBID_SHARE:
            self._has_fault = True
            yield ("forbid", index, rng.choice(("open", "commit")))
        elif rng.random() < share:
            order = rng.choice(("retry", "retry", "skip", "skip", "skip", "skip another"))
            yield ("order", index, order, rng.random() < 0.2, rng.choice(PAUSES))

    def _changed(self, rng: random.Random) -> tuple[str, dict[str, Any]]:
        """The queue or address that a configuration changes, and its settings."""
        of_address = [ADDRESS, DECLARED] if self._plan.addresses else []
        name = rng.choice([*self._plan.queues, ADDED, *of_address])
        if name == ADDRESS:
            return name, {"retroactive_count": rng.choice((0, 1, 2, 4))}
        settings = [*random_settings(rng).items()]
        return name, dict(rng.sample(settings, rng.choice((1, len(settings)))))

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    # --- producers -------------------------------------------------------------------------------

    def _message(self) -> tuple[str, str, dict[str, Any]]:
        """Topic, queue and header fields of a message."""
        rng = self._rng
        message_id, target = f"m{self._next()}", rng.choice(self._targets)
        self._sent.append((message_id, target))
        fields: dict[str, Any] = {"id": message_id}
        if rng.random() < 0.1:
            del fields["id"]
        for name, share, values in (
            ("priority", 0.4, (1, 4, 9)),
            ("group", 0.2, ("g", "h")),
            ("delay-ms", 0.15, (0, 10, 30, 30, 100, 400)),
            ("deliver-at-ms", 0.03, (999_000, 1_000_100)),
            ("ttl-ms", 0.2, (0, 5, 20, 80)),
            ("expires-at-ms", 0.03, (999_000, 1_000_200)),
            ("properties", 0.3, ('{"n":1}', '{"n":3}', '{"n":3,"colour":"red"}')),
            ("redrives", 0.05, (1, 2, 6)),
            ("delivery-mode", 0.3 if self._plan.has_non_persistent else 0.0, ("non_persistent",)),
            ("xid", 0.15 if self._has_xids else 0.0, ("x1", "x2")),
            ("queue", 0.05, ("nowhere",)),
        ):
            if rng.random() < share:
                fields[name] = rng.choice(values)
        if rng.random() < 0.2:
            fields["colour"] = "red"
        if rng.random() < 0.1:
            fields["size"] = rng.choice([0, 30])
        if rng.random() < 0.01:
            fields["priority"] = "high"
        if fields.get("redrives") in (1, 2):  # else it is no redrive
            fields["redrive-of"] = f"{target}/{fields['redrives']}"
        if "xid" in fields and (owner := self._owners.choice(OWNERS)):
            fields["xid-owner"] = owner
        if "delay-ms" in fields:
            self._delayed.append((message_id, target))
        return rng.choice(("keyed", "keyed", "timed", "far")), target, fields

    def _send(self) -> Step:
        """A message, or once more one for a queue with a dedup window (R119)."""
        topic, target, fields = self._message()
        if self._repeatable and self._again.random() < 0.2:
            return ("send", *self._again.choice(self._repeatable[-5:]))
        if self._plan.queues.get(target, {}).get("dedup_window"):
            self._repeatable.append((topic, target, fields))
        return ("send", topic, target, fields)

    def _burst(self) -> Step:
        messages = [self._message() for _ in range(self._rng.randint(2, 6))]
        return ("transaction", messages, self._rng.random() < 0.7)

    def _open_or_close(self) -> Step:
        """Open or close the transaction of a slow producer."""
        if self._open and self._rng.random() < 0.7:
            return ("close", self._open.pop(), self._rng.random() < 0.6)
        name = f"t{self._next()}"
        self._open.append(name)
        return ("open", name, [self._message() for _ in range(self._rng.randint(1, 3))])

    # --- consumers and operators -----------------------------------------------------------------

    def _say(self, queue: str, /, **command: Any) -> Step:
        """A command, sometimes twice; most ask for a reply."""
        rng = self._rng
        if rng.random() < 0.7:
            command["reply"] = f"r{self._next()}"
        return ("say", partition_for(queue), command, 2 if rng.random() < 0.08 else 1)

    def _attach(self) -> Step:
        rng = self._rng
        settings: dict[str, Any] = {"credit": rng.choice([0, 1, 1, 2, 3, 10])}
        for name, share, values in (
            ("priority", 0.2, (1, 2)),
            ("ack_mode", 0.4, ("auto", "client", "client", "dups_ok", "none")),
            ("session", 0.3, ("s",)),
            ("credit_bytes", 0.1, (1, 20)),
            ("selector", 0.2, (*SELECTORS, "n >")),
        ):
            if rng.random() < share:
                settings[name] = rng.choice(values)
        consumer = rng.choice(CONSUMERS)
        if self._plan.addresses and rng.random() < 0.3:
            if rng.random() < 0.6:
                settings["subscription"] = rng.choice(("ann", "red"))
                if settings["subscription"] == "red":
                    settings["client"] = "x"
                    settings["selector"] = "colour = 'red'"
                settings["shared"] = rng.random() < 0.5
            fields = {"address": ADDRESS, "consumer": consumer, **settings}
            return self._say(ADDRESS, type="subscribe", **fields)
        queue = rng.choice(self._queues)
        return self._say(queue, type="attach", queue=queue, consumer=consumer, **settings)

    def _consume(self) -> Step:
        """What a consumer does besides settling."""
        rng = self._rng
        queue, consumer = rng.choice(self._queues), rng.choice(CONSUMERS)
        kind = rng.choice(
            ("credit", "heartbeat", "heartbeat", "detach", "detach", "recover", "rollback")
        )
        if kind == "rollback":
            return self._say(queue, type=kind, session="s")
        more = {"add": rng.choice([0, 1, 2])} if kind == "credit" else {}
        return self._say(queue, type=kind, queue=queue, consumer=consumer, **more)

    def _settle(self) -> Step:
        rng = self._rng
        how = rng.choice(("ack", "ack", "ack", "release", "release", "reject"))
        command: dict[str, Any] = {"type": how}
        if how == "release" and rng.random() < 0.3:
            command["delay_ms"] = rng.choice([0, 10])
        if how == "ack" and self._has_xids and rng.random() < 0.3:
            command["xid"] = rng.choice(("x1", "x2"))
            command["owner"] = self._owners.choice(OWNERS)
        if rng.random() < 0.5:
            command["reply"] = f"r{self._next()}"
        is_late, by_name = rng.random() < 0.15, rng.random() < 0.2
        nth, others = rng.randrange(100), 0
        if how == "ack" and "xid" not in command:
            others = self._together.choice((0, 0, 1, 2, 5))
        return ("settle", nth, command, is_late, by_name, others)

    def _operate(self) -> Step:
        rng = self._rng
        queue = rng.choice(self._queues)
        kind = rng.choice(
            ("configure", "pause", "resume", "purge", "remove", "move", "create_queue", "list") * 2
            + ("configure", "resume", "delete_queue", "cancel_scheduled", "deliver_now")
        )
        more: dict[str, Any] = {}
        if kind in ("remove", "move", "cancel_scheduled", "deliver_now"):
            is_late = kind in ("cancel_scheduled", "deliver_now")
            more["message"], queue = rng.choice((self._delayed if is_late else self._sent)[-12:])
            queue = rng.choice(MEMBERS) if queue == ADDRESS else queue
        if kind == "move":
            more["to"] = rng.choice(
                [name for name in self._queues if partition_for(name) == partition_for(queue)]
            )
        if kind in ("pause", "resume"):
            more["what"] = rng.choice(("pulling", "dispatch"))
        if kind == "configure":
            settings = random_settings(rng)
            more["settings"] = {"ring_size": 1, "shrink": "eager"}
        if kind == "configure" and rng.random() < 0.7:
            more["settings"] = dict(
                rng.sample([*settings.items(), ("ring_size", rng.choice([1, 2, 4, -1]))], 1)
            )
        if kind == "create_queue":
            queue = rng.choice([CREATED, *MEMBERS[1:3]] if self._plan.addresses else [CREATED])
            more["settings"] = random_settings(rng)
        if self._plan.addresses and kind == "purge":
            count = rng.choice([0, 1, 2, 4])
            fields = {"address": ADDRESS, "settings": {"retroactive_count": count}}
            return self._say(ADDRESS, type="configure_address", **fields)
        if kind == "list":
            return ("say", partition_for(queue), {"type": kind, "queue": queue, "reply": "list"}, 1)
        return self._say(queue, type=kind, queue=queue, **more)

    def _xid(self) -> Step:
        kind = self._rng.choice(("begin", "begin", "prepare", "prepare", "commit", "rollback_xid"))
        command: dict[str, object] = {
            "type": kind if self._has_xids else "tick",
            "xid": self._rng.choice(("x1", "x2")),
        }
        if kind == "begin":
            command["owner"] = self._owners.choice(OWNERS)
            command["timeout_ms"] = self._owners.choice((30, 200, 300_000))
        if not self._has_xids:
            command = {"type": "tick", "now_ms": 5}
        number = self._rng.randrange(PARTITIONS)
        return ("say", number, {**command, "reply": f"r{self._next()}"}, 1)

    def _nonsense(self) -> Step:
        return (
            "nonsense",
            self._rng.randrange(PARTITIONS),
            self._rng.choice(("{", '{"type":"ack"}')),
        )

    # --- the workers -----------------------------------------------------------------------------

    def _unit(self) -> int:
        return self._rng.randrange(self._units)

    def _work(self) -> Step:
        topics = self._rng.sample(TOPICS, len(TOPICS))
        fetches = [
            (topic, self._rng.choice([1, 2, 5, 50])) for topic in topics[self._rng.randrange(3) :]
        ]
        return ("work", self._unit(), fetches, self._rng.choice([0, 1, 2, 3, 3]))

    def _fetch(self) -> Step:
        again = self._rng.choice([0, 0, 1, 4])
        return (
            "fetch",
            self._unit(),
            self._rng.choice(TOPICS),
            self._rng.choice([1, 3, 20]),
            again,
        )

    def _cycle(self) -> Step:
        return ("cycle", self._unit())

    def _commit(self) -> Step:
        fails = self._rng.choices(("", "now", "late"), (75, 15, 10))[0]
        return ("commit", self._unit(), self._rng.randint(1, 3), fails)

    def _late(self) -> Step:
        return ("late", *self._work()[1:3])

    def _crash(self) -> Step:
        return ("crash", self._rng.randrange(WORKERS), self._rng.choice(DISKS))

    def _assign(self) -> Step:
        how = self._rng.choice(("clean", "zombie", "handover", "handover"))
        return ("assign", self._unit(), self._rng.randrange(WORKERS), how)

    def _zombie(self) -> Step:
        return ("zombie", self._rng.choice(("work", "cycle", "commit")))

    def _advance(self) -> Step:
        return ("advance", self._rng.choice([1, 3, 10, 30, 100]))

    def _skew(self) -> Step:
        return (
            "skew",
            self._rng.randrange(WORKERS),
            self._rng.choice([-500, -40, 0, 0, 25, 200, 700]),
        )

    def _hold(self) -> Step:
        """Another client opens a transaction on the control topic; `close` ends it."""
        name = f"t{self._next()}"
        self._open.append(name)
        return ("hold", name, self._rng.randrange(PARTITIONS))

    def _outage(self) -> Step:
        return ("outage", self._rng.choice([20, 70, 350]))

    def _stall(self) -> Step:
        """A worker is busy for long: with a step of another queue, or without a processor."""
        return ("stall", self._unit(), self._rng.choice([70, 350]))

    def _recreate(self) -> Step:
        return ("recreate", self._rng.choice(("keyed", "timed")))

    def _retain(self) -> Step:
        number = self._rng.randrange(PARTITIONS)
        return ("retain", self._rng.choice(TOPICS[1:]), number, self._rng.choice((0.2, 0.6, 1.0)))

    def _compact(self) -> Step:
        return ("compact", self._rng.randrange(PARTITIONS))


_WRITING = ("send", "transaction", "open", "say", "settle", "nonsense", "apply")
_OPERATED = {"apply": 0.03, "raise_level": 0.005, "send": 0.04, "attach": 0.02}
"""Shares of the steps after one about a configuration, the level, or a queue that is added."""
_WEIGHTS = {
    "send": 22, "burst": 4, "open_or_close": 3, "attach": 8, "consume": 6, "settle": 14,
    "operate": 9, "nonsense": 0.5, "work": 24, "fetch": 4, "cycle": 4, "commit": 5, "late": 4,
    "crash": 1.5, "assign": 2.5, "zombie": 1.5, "advance": 6, "skew": 0.7, "hold": 0.7,
    "outage": 0.5, "stall": 1, "compact": 0.7,
    "recreate": 0.3, "retain": 0.5,
}  # fmt: skip
