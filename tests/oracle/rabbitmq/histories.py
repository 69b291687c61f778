"""Definitions and what is done with them, drawn from a seed.

As beside Artemis, an operation says little enough to make sense in any state: what makes no sense
at its turn is skipped, so that a history stays one when some of it is left out.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

QUEUES = ("q1", "q2", "q3")
DEAD, LOST = "dead", "lost"
"""The queues of the dead letter exchange and of the alternate exchange."""
CONSUMERS = ("c1", "c2")
TTL_MS, LONG_MS = 400, 3_600_000
"""Times to live: one that ends in a history, and one that does not."""
_WORDS = ("a", "b", "c")
_KINDS = ("direct", "topic", "fanout", "headers")
Entry = dict[str, Any]


class Operation(NamedTuple):
    """One step. Which fields matter depends on `kind`."""

    kind: str
    name: str = ""
    """Of a consumer; the id of what is published."""
    to: str = ""
    """A queue or an exchange."""
    number: int = 0
    """Prefetch count; which of the held messages."""
    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    priority: int = -1
    """-1: none."""
    size: int = 0

    def __str__(self) -> str:
        values = self._asdict().items()
        given = [f"{name}={value}" for name, value in values if value not in ("", 0, ())]
        return " ".join(given)


class History(NamedTuple):
    """What is played on both sides."""

    definitions: Entry
    operations: tuple[Operation, ...]

    @property
    def vhost(self) -> str:
        """The virtual host of everything in it."""
        name: str = self.definitions["vhosts"][0]["name"]
        return name


def history(
    seed: int, length: int, vhost: str = "/", ttl_ms: int = TTL_MS, version: str = ""
) -> History:
    """The history of a seed.

    `vhost`: the virtual host of all. `ttl_ms`: the short time to live. `version`: of RabbitMQ.
    """
    drawn = _Writer(random.Random(seed), vhost, ttl_ms).write(length)
    drawn.definitions["rabbit_version"] = version
    return drawn


class _Writer:
    def __init__(self, rng: random.Random, vhost: str, ttl_ms: int) -> None:
        self.rng, self.vhost, self.ttl_ms = rng, vhost, ttl_ms
        self.has_ttl, self.has_bytes = rng.random() < 0.3, rng.random() < 0.3
        self.queues = QUEUES[: rng.choice([1, 2, 2, 3])]
        self.exchanges = ["x1", "x2"][: rng.choice([0, 1, 1, 2])]
        self.keys: list[str] = ["a", "a.b", "", "a..b", "c"]
        self.sent = 0

    def write(self, length: int) -> History:
        definitions = self._definitions()
        operations = tuple(self._operation() for _ in range(length))
        return History(definitions, operations)

    # --- definitions -----------------------------------------------------------------------------

    def _definitions(self) -> Entry:
        rng, everything = self.rng, {"configure": ".*", "write": ".*", "read": ".*"}
        self.types = {name: rng.choice(["classic", "classic", "quorum"]) for name in self.queues}
        queues = [self._queue(name) for name in self.queues]
        queues += [self._entry(name, durable=True, arguments={}) for name in (DEAD, LOST)]
        exchanges = [self._exchange(name, "fanout") for name in ("dlx", "ae")]
        bindings = [self._binding("dlx", DEAD, "", {}), self._binding("ae", LOST, "", {})]
        owner = {name: rng.choice([*self.exchanges, ""]) for name in self.queues}
        owner.update(zip(self.queues, self.exchanges, strict=False))
        for name in self.exchanges:
            kind = rng.choice(_KINDS)
            given = {"alternate-exchange": "ae"} if rng.random() < 0.3 else {}
            exchanges.append(self._exchange(name, kind, given))
            bindings += [
                self._bound(name, queue, kind)
                for queue in self.queues
                if owner[queue] == name
                for _ in range(rng.choice([1, 1, 2, 3]))
            ]
        return {
            "vhosts": [{"name": self.vhost}],
            "permissions": [{"user": "guest", "vhost": self.vhost, **everything}],
            "queues": queues, "exchanges": exchanges, "bindings": bindings,
            "policies": [self._policy(number) for number in range(rng.choice([0, 1, 1, 2, 3]))],
            "parameters": [self._operator(number) for number in range(rng.choice([0, 0, 1, 2]))],
        }  # fmt: skip

    def _entry(self, name: str, **more: Any) -> Entry:
        return {"name": name, "vhost": self.vhost, "auto_delete": False, **more}

    def _queue(self, name: str) -> Entry:
        rng, kind = self.rng, self.types[name]
        arguments: Entry = {f"x-{key}": value for key, value in self._settings(kind).items()}
        if rng.random() < 0.25:
            arguments["x-single-active-consumer"] = True
        if kind == "classic" and rng.random() < 0.2:
            arguments["x-max-priority"] = rng.choice([1, 5, 9, 10])
        if kind == "quorum" or rng.random() < 0.2:
            arguments["x-queue-type"] = kind
        return self._entry(name, durable=True, arguments=arguments)

    def _settings(self, kind: str, *, is_operator: bool = False) -> Entry:
        """`kind`: of queue; empty: of a policy, which may not suit the queue."""
        rng = self.rng
        drawn: Entry = {}
        if rng.random() < 0.5:
            drawn["max-length"] = rng.choice([1, 2, 3, 4])
        if self.has_bytes and rng.random() < 0.5:
            drawn["max-length-bytes"] = rng.choice([20, 30, 50])
        if self.has_ttl and rng.random() < 0.5:
            drawn["message-ttl"] = rng.choice([self.ttl_ms, LONG_MS])
        if kind == "quorum" and rng.random() < 0.4 or kind == "" and rng.random() < 0.15:
            drawn["delivery-limit"] = rng.choice([1, 2])
        if is_operator:
            return drawn
        if rng.random() < 0.35:
            others = [] if kind == "quorum" else ["reject-publish-dlx"]
            drawn["overflow"] = rng.choice(["drop-head", "reject-publish", *others])
        if rng.random() < 0.5:
            drawn["dead-letter-exchange"] = "dlx"
        return drawn

    def _policy(self, number: int) -> Entry:
        definition = self._settings("") or {"max-length": 2}
        if self.rng.random() < 0.1:
            definition["queue-mode"] = "lazy"
        return self._policy_entry(number, definition, self.rng.choice(["queues", "all"]))

    def _operator(self, number: int) -> Entry:
        definition = self._settings("", is_operator=True) or {"max-length": 3}
        value = self._policy_entry(number, definition, "queues")
        del value["vhost"], value["name"]
        return {"component": "operator_policy", "name": f"o{number}", "vhost": self.vhost,
                "value": value}  # fmt: skip

    def _policy_entry(self, number: int, definition: Entry, applies_to: str) -> Entry:
        pattern = self.rng.choice(["^q1$", "^q", "q[12]", "^(q1|q3)$", "2", "^q.$"])
        return {"name": f"p{number}", "vhost": self.vhost, "pattern": pattern, "priority": number,
                "apply-to": applies_to, "definition": definition}  # fmt: skip

    def _exchange(self, name: str, kind: str, arguments: Entry | None = None) -> Entry:
        return self._entry(name, type=kind, durable=True, internal=False,
                           arguments=arguments or {})  # fmt: skip

    def _binding(self, source: str, to: str, key: str, arguments: Entry) -> Entry:
        return {
            "source": source, "vhost": self.vhost, "destination": to, "destination_type": "queue",
            "routing_key": key, "arguments": arguments,
        }  # fmt: skip

    def _bound(self, exchange: str, queue: str, kind: str) -> Entry:
        rng, key, arguments = self.rng, "", {}
        if kind == "headers":
            names = rng.sample(["h", "x-h", "k"], rng.choice([1, 1, 2]))
            arguments = {name: rng.choice("12") for name in names}
            if rng.random() < 0.8:
                arguments["x-match"] = rng.choice(["all", "any", "all-with-x", "any-with-x"])
        elif kind == "topic":
            words = [
                rng.choice([*_WORDS, "*", "*", ""]) for _ in range(rng.choice([0, 1, 2, 2, 3]))
            ]
            key = ".".join([*words, *(["#"] if rng.random() < 0.4 else [])])
        else:
            key = rng.choice(["a", "b", "", "a.b"])
        self.keys.append(key.replace("*", rng.choice(_WORDS)).replace("#", rng.choice(_WORDS)))
        return self._binding(exchange, queue, key, arguments)

    # --- operations ------------------------------------------------------------------------------

    def _operation(self) -> Operation:
        rng = self.rng
        weights = {"publish": 36, "consume": 14, "ack": 16, "release": 12, "reject": 6, "close": 4,
                   "advance": 6 if self.has_ttl else 0}  # fmt: skip
        (kind,) = rng.choices([*weights], [*weights.values()])
        if kind == "publish":
            return self._publish()
        if kind == "consume":
            queue, prefetch = rng.choice(self.queues), rng.choice([1, 1, 2, 3])
            return Operation(kind, rng.choice(CONSUMERS), queue, prefetch)
        return Operation(kind, rng.choice(CONSUMERS), number=rng.choice([0, 0, 1, 2]))

    def _publish(self) -> Operation:
        rng = self.rng
        self.sent += 1
        words = [rng.choice([*_WORDS, ""]) for _ in range(rng.choice([0, 1, 2, 2, 3]))]
        names = rng.sample(["h", "x-h", "k"], rng.choice([0, 1, 2, 3]))
        return Operation(
            "publish", f"m{self.sent}", rng.choice([*self.queues, *self.exchanges * 2]),
            key=rng.choice([".".join(words), rng.choice(self.keys)]),
            headers=tuple((name, rng.choice("12")) for name in names),
            priority=rng.choice([-1, -1, 0, 1, 5, 9]), size=rng.choice([4, 4, 10, 25, 60]),
        )  # fmt: skip
