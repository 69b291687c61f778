"""One history on both sides: each operation, then what is seen on both, compared.

An operation is skipped on both sides where a line of the import says that they differ; the tally
counts these.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import fields, replace
from itertools import count

from ringfaust.core.model import Message
from ringfaust.core.queue import Queue
from tests.held import held_by
from tests.oracle.clock import Late
from tests.oracle.comparing import Difference, Tally, in_time
from tests.oracle.rabbitmq.broker import Broker
from tests.oracle.rabbitmq.client import Client, Seen
from tests.oracle.rabbitmq.histories import LONG_MS, QUEUES, TTL_MS, History, Operation, history
from tests.oracle.rabbitmq.ours import Ours

SLOWEST_TTL_MS = 3_200
AFTER_MS = 150
"""How long after its time a message may stay at the head of a queue."""
_ANSWER_SECONDS = 5.0
_numbers = count(1)


def play(
    broker: Broker, seed: int, length: int, tally: Tally | None = None,
    kept: frozenset[int] | None = None,
) -> Difference | None:  # fmt: skip
    """Play the history of a seed; the first difference, or None.

    `kept`: the numbers, from 0, of the operations to be played; None: all.

    Raises:
        Late: even with a long time to live this machine is too slow.
    """

    def played(ttl_ms: int) -> Difference | None:
        drawn = history(seed, length, f"h{next(_numbers)}", ttl_ms, broker.version)
        if kept is not None:
            chosen = (each for number, each in enumerate(drawn.operations) if number in kept)
            drawn = drawn._replace(operations=tuple(chosen))
        broker.load(drawn.definitions)
        game = Game(broker, drawn, ttl_ms)
        try:
            difference = game.play()
        finally:
            game.client.close()
            broker.remove(drawn.vhost)
        if tally is not None and difference is None:
            tally.update(game.tally)
        return difference

    return in_time(TTL_MS, SLOWEST_TTL_MS, played)


def _comparable(seen: Seen, refused_at: set[tuple[str, str]]) -> Seen:
    """The order in which one operation makes several messages leave does not count.

    `refused_at`: what queues have refused. With reject-publish-dlx RabbitMQ dead-letters it, too.
    """
    dead = {
        name: sorted(fact for fact in facts if (name, fact[0]) not in refused_at)
        for name, facts in seen.dead.items()
    }
    return replace(seen, dead=dead)


def _held(queue: Queue) -> list[Message]:
    """What is being delivered."""
    return [each.message for taker in queue.consumers.values() for each in held_by(queue, taker)]


class Game:
    """Both sides, and when what may expire was sent."""

    def __init__(self, broker: Broker, drawn: History, ttl_ms: int) -> None:
        given = {each["name"]: each for each in drawn.definitions["queues"]}
        self.queues = [name for name in QUEUES if name in given]
        self.arguments = {name: given[name]["arguments"] for name in self.queues}
        self.history, self.ttl_ms = drawn, ttl_ms
        self.ours = Ours(drawn.definitions, self.queues)
        self.client = Client(broker, drawn.vhost, self.queues)
        self.sent_s: float | None = None
        """When the first message was sent that has not expired yet."""
        self.is_at_fault = False
        self.tally: Tally = Counter()

    def play(self) -> Difference | None:
        """All operations, until the sides differ."""
        for number, operation in enumerate(self.history.operations, 1):
            if self._age_ms() > self.ttl_ms * 0.5:
                self._advance(operation)
            done = getattr(self, f"_{operation.kind}")(operation)
            self.tally[operation.kind] += done
            if found := self._differs():
                return Difference(number, operation, "RabbitMQ", *found)
            if self.is_at_fault:
                self.tally["cut short by RabbitMQ's fault"] += 1
                break
            if self._age_ms() > self.ttl_ms * 0.9:
                raise Late
        seen = self.ours.seen
        for facts in seen.dead.values():
            self.tally.update(reason for _, reason in facts)
        self.tally["delivered"] += sum(map(len, seen.delivered.values()))
        self.tally["unrouted"] += len(seen.unrouted)
        self.tally["refused"] += len(seen.refused)
        return None

    def _differs(self) -> tuple[str, object, object] | None:
        until = time.monotonic() + _ANSWER_SECONDS
        while True:
            theirs = _comparable(self.client.look(), self.ours.refused_at)
            ours = _comparable(self.ours.seen, set())
            if theirs == ours:
                return None
            if time.monotonic() > until:
                name = next(
                    each.name
                    for each in fields(Seen)
                    if getattr(theirs, each.name) != getattr(ours, each.name)
                )
                return name, getattr(theirs, name), getattr(ours, name)
            time.sleep(0.002)

    def _is_quorum(self, name: str) -> bool:
        return bool(self.arguments[name].get("x-queue-type") == "quorum")

    def _age_ms(self) -> float:
        return (time.monotonic() - self.sent_s) * 1000 if self.sent_s is not None else 0

    # --- one operation ---------------------------------------------------------------------------
    # Each returns whether it was played.

    def _publish(self, publish: Operation) -> bool:
        ours = self.ours
        is_queue = publish.to in self.queues
        targets = [publish.to] if is_queue else ours.addresses.get(publish.to, [])
        if not is_queue and not ours.is_open(publish.to):
            return self._skip("a binding that is not taken over")
        priorities = {ours.priority(name, publish.priority) for name in targets}
        if len(priorities) > 1:
            return self._skip("queues that see a priority differently")
        lives = {ours.ttl_ms[name] for name in targets}
        if len(lives) > 1:
            return self._skip("queues with different times to live")
        if any(self._counts_otherwise(name, publish.size) for name in targets):
            return self._skip("a limit that counts what is being delivered")
        (ttl_ms,) = lives or {None}
        if ttl_ms is not None and ttl_ms < LONG_MS and self.sent_s is None:
            self.sent_s = time.monotonic()
        (priority,) = priorities or {4}
        ours.publish(publish, priority, ttl_ms)
        body = f"{publish.name}.".ljust(publish.size, "-")[: publish.size].encode()
        self.client.publish(
            "" if is_queue else publish.to, publish.to if is_queue else publish.key, body,
            dict(publish.headers), publish.priority if publish.priority >= 0 else None,
        )  # fmt: skip
        return True

    def _counts_otherwise(self, name: str, size: int) -> bool:
        """`max_messages` and `max_bytes` also count what is being delivered."""
        queue = self.ours.queue(name)
        spec, ready, held = queue.spec, list(queue.in_order()), _held(queue)
        number, number_ready = len(ready) + len(held) + 1, len(ready) + 1
        total_ready = sum(each.size_bytes for each in ready) + size
        total = total_ready + sum(each.size_bytes for each in held)

        is_over = queue.exceeds(number, total)
        if spec.when_full == "reject_newest" and self._is_quorum(name):
            return is_over
        if spec.when_full == "reject_newest":
            return is_over != queue.exceeds(number_ready, total_ready)
        return is_over and (bool(held) or self.ours.most_priority[name] is not None)

    def _returns_otherwise(self, name: str, held: list[str], *, is_leaving: bool) -> bool:
        """In quorum queues returned messages come first or last, and may need no room.

        A full classic queue with priorities drops others than the oldest.
        """
        queue = self.ours.queue(name)
        spec, ready = queue.spec, list(queue.in_order())
        is_full = 0 < spec.ring_size < len(ready) + len(held)
        taken = [each for each in _held(queue) if each.id in held]
        if is_full and any(0 < each.expires_at_ms <= self.ours.now_ms for each in taken):
            return True
        if held and 0 <= spec.max_bytes < sum(each.size_bytes for each in (*ready, *taken)):
            return True
        if not self._is_quorum(name):
            return is_full and spec.evict == "head"
        if not held:
            return False
        returned = [each.position for each in ready if each.handovers]
        is_later = bool(returned) and min(each.position for each in taken) < max(returned)
        is_last = bool(ready) and spec.max_attempts == -1
        is_next = is_leaving and bool(ready) and len(queue.consumers) > 1
        again = len(held) > 1 and any(each.handovers > 1 for each in taken)
        return is_full or is_later or is_next or again or (is_last and not is_leaving)

    def _ends(self, name: str, message: str) -> bool:
        """Whether a release is the last one that the delivery limit allows.

        RabbitMQ 3.10 then gives the consumer credit twice (rabbit_fifo, `return_one` and `return`),
        so that it gets more than it asked for, and what follows cannot be compared.
        """
        queue = self.ours.queue(name)
        attempts = next(each.attempts for each in _held(queue) if each.id == message)
        return 0 < queue.spec.max_attempts <= attempts

    def _consume(self, consume: Operation) -> bool:
        queue, arguments = consume.to, self.arguments[consume.to]
        if consume.name in self.ours.at:
            return False
        if queue in self.ours.at.values() and not arguments.get("x-single-active-consumer"):
            return False
        self.ours.consume(consume.name, queue, consume.number)
        self.client.consume(consume.name, queue, consume.number)
        return True

    def _close(self, close: Operation) -> bool:
        if close.name not in self.ours.at:
            return False
        queue = self.ours.queue(self.ours.at[close.name])
        held = self.ours.held(close.name)
        if held and queue.spec.max_attempts != -1:
            return self._skip("an attempt that a consumer's leaving counts")
        if self._returns_otherwise(self.ours.at[close.name], held, is_leaving=True):
            return self._skip("how messages return")
        self.ours.leave(close.name)
        self.client.leave(close.name)
        return True

    def _settle(self, settle: Operation) -> bool:
        if settle.name not in self.ours.at or not (held := self.ours.held(settle.name)):
            return False
        message = held[settle.number % len(held)]
        queue = self.ours.at[settle.name]
        if settle.kind == "release" and self._returns_otherwise(queue, [message], is_leaving=False):
            return self._skip("how messages return")
        if settle.kind == "release" and self._ends(queue, message):
            if self.ours.seen.ready[queue] > 1:
                return self._skip("RabbitMQ's fault")
            self.is_at_fault = True
        self.ours.settle(settle.kind, settle.name, message)
        self.client.settle(settle.kind, settle.name, message)
        return True

    _ack = _release = _reject = _settle

    def _advance(self, _: Operation) -> bool:
        if self.sent_s is None:
            return False
        ms = self.ttl_ms + AFTER_MS
        time.sleep(ms / 1000)
        self.ours.advance(ms)
        self.sent_s = None
        return True

    def _skip(self, why: str) -> bool:
        self.tally[f"skipped: {why}"] += 1
        return False
