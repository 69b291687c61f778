"""Scenarios through the public protocol only, on any host that reads the topics.

Sends are records with headers, and everything else is control JSON. Tick records move the clock,
`list` reports the state, and read_committed consumers read the outputs. One partition serves file
after file. Its clock never goes back, so each file's time begins where that of the previous file
ended. Each file has its own prefix for queues and sessions. Its queues are deleted at the end,
which also checks that their accounts balance.

If pulling of a queue may stop (R60 block, R90 pause), its sends go to a separate topic; in the
common topic they would hold up all other queues (R61). After each step, `list` tells whether
lagging records must be pulled now.

A redrive (R43) uses the code of `ringfaust redrive` to find the message and writes it as a send.

A session's operations are buffered by its client and written in one Kafka transaction at the commit
(see `sessions`). At a rollback they are written as well, in a transaction that is then aborted:
this detects a worker that acts on uncommitted records.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from typing import Any

from ringfaust.core import commands as c
from ringfaust.core.address import SEPARATOR, address_of, queue_name
from ringfaust.core.catalog import Catalog, catalog_of
from ringfaust.core.model import Refusal
from ringfaust.core.patterns import is_pattern
from ringfaust.errors import BadSetting
from ringfaust.protocol import headers as h
from ringfaust.protocol.control import OPERATOR_COMMANDS, kind_of
from ringfaust.protocol.records import Headers, Payload, Role
from ringfaust.testing.scenario import grammar as g
from ringfaust.testing.scenario.channel import ScenarioRecord
from ringfaust.testing.scenario.consistency import observed_effects
from ringfaust.testing.scenario.partition import ADDRESS, START_SECONDS, ScenarioPartition
from ringfaust.testing.scenario.player import Difference, ObservedEffect, QueueListing
from ringfaust.testing.scenario.sessions import SessionHost

_LIST_LIMIT = 10_000


_CREATES = (c.CreateQueue, c.Configure, c.ConfigureAddress, c.Pause)
"""Commands of operators that create a queue of a pattern; the others do not (R90)."""
_NEEDS_QUEUE = tuple(each for each in OPERATOR_COMMANDS.values() if each not in _CREATES)


class KafkaScenarioHost(SessionHost):
    """Plays one file on a partition of a running worker.

    Args:
        partition: the partition.
        prefix: is put before the file's queues and sessions.
    """

    def __init__(self, partition: ScenarioPartition, prefix: str) -> None:
        super().__init__()
        self._partition = partition
        self._prefix = prefix
        self._base_ms = partition.now_ms
        self._catalog = Catalog({}, {})
        self._created: list[str] = []
        """The file's queues in the order of their creation."""
        self._addresses: list[str] = []
        self._xids: dict[str, None] = {}
        self._may_wait: set[str] = set()
        """Queues that may be paused or full, so that sends to them may lag."""
        self._paused: set[str] = set()
        self._waiting: dict[str, str] = {}
        """By destination: the topic of the sends that may lag."""
        self._first_revision = 0
        """That of the configuration with which the file has begun; 0: it applies none (R128)."""

    def start(self, scenario: g.Scenario) -> None:
        """Create the scenario's queues. A queue that matches a pattern is created at first use."""
        settings, addresses = scenario.all_settings(), scenario.all_addresses()
        self._catalog = Catalog(scenario.queues, settings, addresses)
        if any(step.kind == "apply" for step in scenario.steps):
            self._first_revision = self._partition.revision + 1
            self._create([c.Apply(0, scenario.document())])
            return
        names = [name for name in (*scenario.queues, *addresses) if not is_pattern(name)]
        self._create([command for name in names for command in self._creation_of(name)])

    def finish(self) -> None:
        """Delete what the file created, and check that the worker wrote nothing unexpected."""
        undo: list[c.Command] = [c.RollbackXid(xid) for xid in self._xids]
        undo += [c.DeleteQueue(name) for name in self._created]
        undo += [c.ConfigureAddress(name, {"retroactive_count": 0}) for name in self._addresses]
        if self._first_revision:
            last = self._partition.revision + 1 - self._first_revision
            undo.append(c.Apply(last, {}))
        try:
            self._step(*map(self._record, undo))
        finally:
            left_over = self._partition.left_over()
        if left_over:
            raise Difference(0, "left over", [], left_over)

    def do(self, commands: Sequence[c.Command], session: str) -> list[ObservedEffect]:
        """Execute the commands of a step in their order, or buffer them in an open session.

        Those that follow one another are written together: a job takes one micro-batch for all.
        """
        buffered = [(self._buffered(command, session), command) for command in commands]
        effects: list[ObservedEffect] = []
        for is_now, group in groupby(buffered, lambda each: each[0] is None):
            if is_now:
                effects += self._execute([command for _, command in group])
            else:
                effects += [each for found, _ in group for each in found or ()]
        return effects

    def _commit(self, pending: list[c.Command]) -> list[ObservedEffect]:
        """Write the operations in one Kafka transaction (R80)."""
        return self._step(*map(self._record, pending), as_one=True) if pending else []

    def _roll_back(self, rollback: c.Rollback, pending: list[c.Command]) -> list[ObservedEffect]:
        """Write the operations in a transaction that is aborted, then the command (R80)."""
        if pending:
            self._partition.abort(list(map(self._record, pending)))
        return self._step(self._record(rollback))

    def advance(self, now_ms: int, heard_ms: int) -> list[ObservedEffect]:
        """Set the clock to `now_ms`, then sweep (R32); clients were heard until `heard_ms`."""
        self._partition.now_ms = self._base_ms + now_ms
        tick = {"now_ms": self._partition.now_ms, "heard_ms": self._base_ms + heard_ms}
        return self._step(self._partition.control("tick", tick))

    def crash(self) -> list[ObservedEffect]:
        """Kill the worker and start it again."""
        return observed_effects(self._partition.crash(), self._plain)

    def redrive(self, source: str, message_id: str, queue: str) -> list[ObservedEffect]:
        """Redrive an evicted or dead message (R43)."""
        self._create(self._creation_of(queue))
        found = self._partition.find_redrivable(
            Role(source), message_id, f"{self._prefix}#", self._full_name(queue)
        )
        if found.refused:
            return [ObservedEffect("refused", message_id, reason=Refusal.BAD_COMMAND)]
        (again,) = found.messages
        record = again.record
        return self._step(self._to_queue(queue, record.key, record.value or b"", record.headers))

    def listing(self, queue: str) -> QueueListing:
        """Return what a queue holds."""
        self._create(self._creation_of(queue))
        fields = {"queue": self._full_name(queue), "limit": _LIST_LIMIT}
        reply = self._partition.ask("list", fields, START_SECONDS)
        if not reply["ok"]:
            return QueueListing([], {}, [], {})
        held = reply["answer"]
        return QueueListing(held["ready"], held["delivering"], held["scheduled"], held["counts"])

    def _note(self, command: c.Command) -> None:
        """Note what later steps depend on."""
        if isinstance(command, c.Pause | c.Resume) and command.what == "pulling":
            self._may_wait.add(command.queue)
            if isinstance(command, c.Pause):
                self._paused.add(command.queue)
            else:
                self._paused.discard(command.queue)
        elif isinstance(command, c.Configure | c.CreateQueue):
            if isinstance(command, c.CreateQueue) and command.queue not in self._created:
                self._created.append(command.queue)
            with suppress(BadSetting):
                spec = self._catalog.spec(command.queue, command.settings)
                if spec.when_full == "block":
                    self._may_wait.add(command.queue)
        elif isinstance(command, c.Begin):
            self._xids[command.xid] = None
        queue = getattr(command, "queue", "")
        if self._first_revision and queue and queue not in self._created:
            self._created.append(queue)

    # --- protocol --------------------------------------------------------------------------------

    def _full_name(self, name: str) -> str:
        """Return the worker's name of a queue or an address."""
        address, separator, queue = name.partition(SEPARATOR)
        if self._catalog.address(address, {}) is not None:
            address += ADDRESS
        return self._prefix + address + separator + queue

    def _plain(self, name: str) -> str:
        """Return the file's name of a queue or an address."""
        address, separator, queue = name.removeprefix(self._prefix).partition(SEPARATOR)
        return address.removesuffix(ADDRESS) + separator + queue

    def _step(self, *records: ScenarioRecord, as_one: bool = False) -> list[ObservedEffect]:
        return observed_effects(self._partition.step(records, as_one), self._plain)

    def _execute(self, commands: Sequence[c.Command]) -> list[ObservedEffect]:
        for command in commands:
            self._note(command)
        return self._step(*map(self._record, commands))

    def _creation_of(self, name: str) -> list[c.Command]:
        """Return the commands that create a declared queue or address; none if it was created."""
        if self._first_revision:  # the worker's configuration declares it
            return []
        address = address_of(name) or name
        spec = self._catalog.address(address, {})
        if spec is not None and address not in self._addresses:
            self._addresses.append(address)
            subscriptions = self._catalog.subscriptions(address)
            return [
                c.ConfigureAddress(address, asdict(spec)),
                *(c.CreateQueue(queue_name(address, each), {}) for each in subscriptions),
            ]
        if spec is None and name not in self._created and self._catalog.declares(name):
            return [c.CreateQueue(name, {})]
        return []

    def _create(self, commands: Sequence[c.Command]) -> None:
        if commands and (refused := self._execute(commands)):
            names = ", ".join(kind_of(type(command)) for command in commands)
            raise Difference(0, f"creation of {names}", [], refused)

    def _record(self, command: c.Command) -> ScenarioRecord:
        if not isinstance(command, _NEEDS_QUEUE):
            self._create(self._creation_of(getattr(command, "queue", "")))
        if isinstance(command, c.Send):
            return self._produced(command)
        fields = {name: value for name, value in command._asdict().items() if value is not None}
        for name in ("queue", "address", "to"):
            if fields.get(name):
                fields[name] = self._full_name(fields[name])
        for name in ("session", "xid"):
            if fields.get(name):
                fields[name] = self._prefix + fields[name]
        if isinstance(command, c.Rollback):
            fields["acked"] = [
                {
                    "queue": self._full_name(ack.queue),
                    "consumer": ack.consumer,
                    "message": ack.message,
                }
                for ack in command.acked
            ]
        if isinstance(command, c.Apply):
            fields |= self._applied(command)
        if isinstance(command, c.CreateQueue):
            with suppress(BadSetting):  # the worker has to refuse it
                fields["settings"] = asdict(self._catalog.spec(command.queue, command.settings))
        return self._partition.control(kind_of(type(command)), fields)

    def _applied(self, apply: c.Apply) -> dict[str, Any]:
        """The configuration that all files share, with what the file declares under its names."""
        revision = self._first_revision + apply.revision
        if revision > self._partition.revision:
            with suppress(BadSetting):  # the worker has to refuse it
                self._catalog = catalog_of(apply.configuration)
                self._partition.revision = revision
        whole = dict(self._partition.document)
        given = apply.configuration
        for section in given.keys() - {"routes"}:
            suffix = ADDRESS if section == "addresses" else ""
            ours = {f"{self._prefix}{name}{suffix}": each for name, each in given[section].items()}
            whole[section] = {**whole[section], **ours}
        return {"revision": revision, "configuration": whole}

    def _produced(self, send: c.Send) -> ScenarioRecord:
        """Return a producer's record. Its times are absolute, as they count from the send."""
        given = {
            h.QUEUE: self._full_name(send.queue),
            h.ID: send.id,
            h.PRIORITY: send.priority if send.priority != c.Send("", "", 0).priority else None,
            h.GROUP: send.group or None,
            h.DELIVER_AT_MS: self._base_ms + send.due_ms if send.due_ms else None,
            h.EXPIRES_AT_MS: self._base_ms + send.expires_at_ms if send.expires_at_ms else None,
            h.DELIVERY_MODE: None if send.persistent else "non_persistent",
            h.XID: self._prefix + send.xid if send.xid else None,
            h.XID_OWNER: send.owner or None,
        }
        ours = [(name, str(value).encode()) for name, value in given.items() if value is not None]
        payload: Payload = send.payload
        headers = (*payload.headers, *ours)
        if send.xid:  # waits for the decision, not for its queue
            return ScenarioRecord(
                self._partition.producer_topic, None, payload.value or b"", headers
            )
        return self._to_queue(send.queue, None, payload.value or b"", headers)

    def _to_queue(
        self, queue: str, key: bytes | None, value: bytes, headers: Headers
    ) -> ScenarioRecord:
        """Return a record for the common topic or, if it may lag, for its destination's own."""
        members = [name for name in self._created if address_of(name) == queue] or [queue]
        slow = [name for name in members if name in self._may_wait]
        if not slow:
            return ScenarioRecord(self._partition.producer_topic, key, value, headers)
        if queue not in self._waiting:
            topics = self._partition.waiting_topics
            free = [topic for topic in topics if topic not in self._waiting.values()]
            if not free:
                raise Difference(0, "destinations that may lag", len(topics), "more")
            self._waiting[queue] = free[0]
        waits_for = tuple(map(self._full_name, slow))
        is_held = not self._paused.isdisjoint(slow)
        return ScenarioRecord(self._waiting[queue], key, value, headers, "", waits_for, is_held)
