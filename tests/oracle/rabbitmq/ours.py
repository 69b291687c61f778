"""Our side: what an import of the definitions gives, on the memory host."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from ringfaust.config import QueuesConfig
from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.model import DeadReason, Refusal
from ringfaust.core.queue import Queue
from ringfaust.importers.imported import ImportFinding, Verdict
from ringfaust.importers.rabbitmq import import_rabbitmq
from ringfaust.importers.write import write
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.records import Payload
from tests.held import held_by
from tests.oracle.rabbitmq.client import Seen
from tests.oracle.rabbitmq.histories import Entry, Operation

_PRIORITY = 4
"""What a message has whose producer sets none."""
_REASONS = {DeadReason.REJECTED: "rejected", DeadReason.UNDELIVERABLE: "delivery_limit"}
_START_MS = 1_000_000_000_000


class Ours:
    """Imported queues, and what the lines of the import tell their users to do."""

    def __init__(self, definitions: Entry, queues: list[str]) -> None:
        with TemporaryDirectory(prefix="ringfaust-oracle-") as folder:
            path = Path(folder, "definitions.json")
            path.write_text(json.dumps(definitions))
            imported = import_rabbitmq(path)
            write(imported, Path(folder, "to"))
        data = imported.queues_data()
        self.findings: list[ImportFinding] = imported.findings
        settings = dict(imported.settings)
        settings["#"] = {**settings.get("#", {}), "consumer_timeout": 0}
        self._host = MemoryHost(
            QueuesConfig.model_validate({**data, "settings": settings}).catalog()
        )
        self.addresses = {
            address: list(fields["subscriptions"])  # type: ignore[call-overload]
            for address, fields in imported.addresses.items()
        }
        members = {name: address for address, own in self.addresses.items() for name in own}
        self._full = {
            name: f"{members[name]}::{name}" if name in members else name for name in queues
        }
        self._short = {full: name for name, full in self._full.items()}
        self.now_ms = _START_MS
        self.at: dict[str, str] = {}
        """The queue of each attached consumer."""
        self.ttl_ms = {name: self._told(name, "message-ttl") for name in queues}
        self.most_priority = {name: self._told(name, "max-priority") for name in queues}
        self.has_dlx = {name for name in queues if self._lines(name, "dead-letter-exchange")}
        self.refused_at: set[tuple[str, str]] = set()
        """Queue and id of what a full queue has refused."""
        self.seen = Seen({name: [] for name in queues}, {name: [] for name in queues})
        self._count_ready()

    def _lines(self, queue: str, setting: str) -> list[ImportFinding]:
        """The lines of a setting that applies to a queue."""
        about = re.compile(
            rf"queue {re.escape(queue)}(, \S+ policy \S+|, policy \S+)?, {setting} = "
        )
        return applying([each for each in self.findings if about.match(each.setting)])

    def _told(self, queue: str, setting: str) -> int | None:
        lines = self._lines(queue, setting)
        assert len(lines) < 2, lines
        return int(lines[0].setting.rpartition(" = ")[2]) if lines else None

    def is_open(self, exchange: str) -> bool:
        """Whether each binding of an exchange is taken over."""
        return exchange in self.addresses and not any(
            each.verdict is Verdict.NONE and each.setting.startswith(f"binding {exchange} ->")
            for each in self.findings
        )

    def queue(self, name: str) -> Queue:
        """The queue as it is now."""
        queue = self._host.state.queue(self._full[name])
        assert queue is not None
        return queue

    def held(self, consumer: str) -> list[str]:
        """What a consumer holds, oldest first."""
        queue = self.queue(self.at[consumer])
        return [each.message.id for each in held_by(queue, queue.consumers[consumer])]

    def priority(self, queue: str, given: int) -> int:
        """What the lines tell a producer to set for this queue. `given`: in RabbitMQ; -1: none."""
        most = self.most_priority[queue]
        return _PRIORITY if most is None else min(max(given, 0), most)

    def publish(self, operation: Operation, priority: int, ttl_ms: int | None) -> None:
        """Send a message."""
        to = self._full.get(operation.to, operation.to)
        headers = (("routing_key", operation.key), *operation.headers)
        encoded = tuple((name, value.encode()) for name, value in headers)
        send = c.Send(
            to, operation.name, self.now_ms, priority,
            expires_at_ms=self.now_ms + ttl_ms if ttl_ms is not None else 0,
            size_bytes=operation.size, payload=Payload(None, b"", encoded, "oracle/0/1"),
        )  # fmt: skip
        self._play(send)

    def consume(self, consumer: str, queue: str, prefetch: int) -> None:
        """Attach a consumer."""
        self.at[consumer] = queue
        self._play(c.Attach(self._full[queue], consumer, prefetch))

    def leave(self, consumer: str) -> None:
        """Detach it."""
        self._play(c.Detach(self._full[self.at.pop(consumer)], consumer))

    def settle(self, kind: str, consumer: str, name: str) -> None:
        """Ack, release or reject."""
        queue = self._full[self.at[consumer]]
        command = {"ack": c.Ack, "release": c.Release, "reject": c.Reject}[kind]
        self._play(command(queue, consumer, name))

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self._play(c.Sweep())

    def _play(self, command: c.Command) -> None:
        for effect in self._host.step(command, self.now_ms).all_effects:
            self._note(effect)
        self._count_ready()

    def _count_ready(self) -> None:
        self.seen.ready = {name: sum(1 for _ in self.queue(name).in_order()) for name in self._full}

    def _note(self, effect: e.Effect) -> None:
        seen = self.seen
        match effect:
            case e.Dispatched(full, delivery):
                fact = delivery.consumer, delivery.message.id
                seen.delivered[self._short[full]].append(fact)
            case e.Unrouted(_, message):
                seen.unrouted.append(message.id)
            case e.Dead(full, message, DeadReason.LIMIT):
                self.refused_at.add((self._short[full], message.id))
                if message.id not in seen.refused:
                    seen.refused.append(message.id)
            case e.Dead(full, message, reason):
                self._leaves(full, message.id, _REASONS[reason])
            case e.Evicted(full, message):
                self._leaves(full, message.id, "maxlen")
            case e.Expired(full, message):
                self._leaves(full, message.id, "expired")
            case e.Refused(reason=Refusal.QUEUE_FULL):
                pass  # the message is dead, too
            case e.Refused():
                raise AssertionError(f"the engine refused a command: {effect}")

    def _leaves(self, full: str, message: str, reason: str) -> None:
        if (name := self._short[full]) in self.has_dlx:
            self.seen.dead[name].append((message, reason))


def applying(lines: list[ImportFinding]) -> list[ImportFinding]:
    """Those of a setting that applies. Each other one has to name one of the lines, as winner."""
    winners = {each.setting: _winner(each) for each in lines}
    for setting, winner in winners.items():
        assert winner is None or (winner in winners and winner != setting), (setting, winner)
    found = [each for each in lines if _winner(each) is None]
    assert found or not lines, lines
    return found


def _winner(line: ImportFinding) -> str | None:
    """How the line of the setting begins that applies instead; None: this one does."""
    said = re.fullmatch(r"(\S+ = .*) of (queue .*) applies, as in RabbitMQ", line.text)
    return f"{said[2]}, {said[1]}" if said else None
