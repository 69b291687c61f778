"""Scenarios by public protocol alone, on whatever host reads the topics.

Sends are records with headers, all else is control JSON; tick records are the clock, `list` tells
the state, read_committed consumers see what comes out. One partition serves file after file. Its
time never goes back, so each file's time begins where that of the one before ended; queues and
sessions have a prefix of their own for each file, and the queues are deleted at its end, which also
shows that their accounts balance to the last.

Where a queue may not be pulled (R60 block, R90 paused), its sends go to a topic of their own: in
the topic of all the others they would hold these up too (R61). After each step `list` tells whether
what lags has to come now.

A redrive (R43) is found by what `ringfaust redrive` uses, and written as any send.

A session's operations are kept by its client and written in one Kafka transaction at the commit
(see `sessions`). At a rollback they are written too, in a transaction that is then aborted: a
worker that acted on them would be found out.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict

from ringfaust.core import commands as c
from ringfaust.core.address import SEPARATOR, address_of, queue_name
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import Refusal
from ringfaust.errors import BadSetting
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Headers, Payload, Role
from ringfaust.testing.scenario import grammar as g
from ringfaust.testing.scenario.channel import ScenarioRecord
from ringfaust.testing.scenario.consistency import observed_effects
from ringfaust.testing.scenario.partition import ADDRESS, START_SECONDS, ScenarioPartition
from ringfaust.testing.scenario.player import Difference, ObservedEffect, QueueListing
from ringfaust.testing.scenario.sessions import PendingSessions, rollback_of, unknown_session

_LIST_LIMIT = 10_000


class KafkaScenarioHost:
    """Plays one file."""

    def __init__(self, partition: ScenarioPartition, prefix: str) -> None:
        self._partition = partition
        self._prefix = prefix
        self._base_ms = partition.now_ms
        self._sessions = PendingSessions()
        self._catalog = Catalog({}, {})
        self._made: list[str] = []
        """Queues, in the order they were made."""
        self._addresses: list[str] = []
        self._xids: dict[str, None] = {}
        self._may_wait: set[str] = set()
        """Queues that are paused or may be full: what is sent to them may lag."""
        self._paused: set[str] = set()
        self._waiting: dict[str, str] = {}
        """By destination of what may lag: its topic."""

    def start(self, scenario: g.Scenario) -> None:
        """Make the scenario's queues, those of a pattern when they are first named."""
        settings, addresses = scenario.all_settings(), scenario.all_addresses()
        self._catalog = Catalog(scenario.queues, settings, addresses)
        for name in (*scenario.queues, *addresses):
            if not {"*", "#"} & set(name.split(".")):
                self._make_if_declared(name)

    def finish(self) -> None:
        """Undo all, and see that the worker wrote nothing beyond what it was asked."""
        undo: list[c.Command] = [c.RollbackXid(xid) for xid in self._xids]
        undo += [c.DeleteQueue(name) for name in self._made]
        undo += [c.ConfigureAddress(name, {"retroactive_count": 0}) for name in self._addresses]
        different: Difference | None = None
        for command in undo:
            try:
                self._step(self._record(command))
            except Difference as difference:
                different = different or difference
        left_over = self._partition.left_over()
        if different is not None:
            raise different
        if left_over:
            raise Difference(0, "left over", [], left_over)

    def do(self, command: c.Command, session: str) -> list[ObservedEffect]:
        """Do one command now, or in an open session."""
        kept = self._sessions.take(command, session)
        if kept is not None:
            return kept
        self._note(command)
        return self._step(self._record(command))

    def begin(self, session: str) -> list[ObservedEffect]:
        """Open a session's transaction."""
        return self._sessions.begin(session)

    def commit(self, session: str) -> list[ObservedEffect]:
        """Write all that the session did, as one Kafka transaction."""
        pending = self._sessions.end(session)
        if pending is None:
            return unknown_session(session)
        return self._step(*map(self._record, pending), as_one=True) if pending else []

    def rollback(self, session: str) -> list[ObservedEffect]:
        """Abort it, and have the worker take back what the session's consumers hold."""
        pending = self._sessions.end(session)
        if pending is None:
            return unknown_session(session)
        if pending:
            self._partition.abort(list(map(self._record, pending)))
        seen = self._step(self._record(rollback_of(session, pending)))
        # Of a session without consumers the worker knows nothing, and there is nothing to return.
        return [each for each in seen if each.kind != "refused"]

    def advance(self, now_ms: int) -> list[ObservedEffect]:
        """Move the clock, then sweep."""
        self._partition.now_ms = self._base_ms + now_ms
        return self._step(self._partition.control("tick", {"now_ms": self._partition.now_ms}))

    def crash(self) -> list[ObservedEffect]:
        """Kill the worker and start it again."""
        return observed_effects(self._partition.crash(), self._plain)

    def redrive(self, source: str, message_id: str, queue: str) -> list[ObservedEffect]:
        """Have it found by the product's own tool, and send what that gives."""
        self._make_if_declared(queue)
        found = self._partition.find_gone(
            Role(source), message_id, f"{self._prefix}#", self._full_name(queue)
        )
        if found.refused:
            return [ObservedEffect("refused", message_id, reason=Refusal.BAD_COMMAND)]
        (again,) = found.messages
        record = again.dead.record
        return self._step(self._to_queue(queue, record.key, record.value or b"", again.headers))

    def listing(self, queue: str) -> QueueListing:
        """What a queue holds."""
        self._make_if_declared(queue)
        fields = {"queue": self._full_name(queue), "limit": _LIST_LIMIT}
        reply = self._partition.ask("list", fields, START_SECONDS)
        if not reply["ok"]:
            return QueueListing([], {}, [], {})
        held = reply["answer"]
        return QueueListing(held["ready"], held["delivering"], held["scheduled"], held["counts"])

    def _note(self, command: c.Command) -> None:
        """What this client has to know later."""
        if isinstance(command, c.Pause | c.Resume) and command.what == "pulling":
            self._may_wait.add(command.queue)
            if isinstance(command, c.Pause):
                self._paused.add(command.queue)
            else:
                self._paused.discard(command.queue)
        elif isinstance(command, c.Configure | c.CreateQueue):
            if isinstance(command, c.CreateQueue) and command.queue not in self._made:
                self._made.append(command.queue)
            with suppress(BadSetting):
                spec = self._catalog.spec(command.queue, command.settings)
                if spec.when_full == "block":
                    self._may_wait.add(command.queue)
        elif isinstance(command, c.Begin):
            self._xids[command.xid] = None

    # --- in the protocol's words -----------------------------------------------------------------

    def _full_name(self, name: str) -> str:
        """The worker's name of a queue or an address."""
        address, separator, queue = name.partition(SEPARATOR)
        if self._catalog.address(address, {}) is not None:
            address += ADDRESS
        return self._prefix + address + separator + queue

    def _plain(self, name: str) -> str:
        """The file's name of it."""
        address, separator, queue = name.removeprefix(self._prefix).partition(SEPARATOR)
        return address.removesuffix(ADDRESS) + separator + queue

    def _step(self, *records: ScenarioRecord, as_one: bool = False) -> list[ObservedEffect]:
        return observed_effects(self._partition.step(records, as_one), self._plain)

    def _make_if_declared(self, name: str) -> None:
        address = address_of(name) or name
        spec = self._catalog.address(address, {})
        if spec is not None and address not in self._addresses:
            self._addresses.append(address)
            self._make(c.ConfigureAddress(address, asdict(spec)))
            for each in self._catalog.subscriptions(address):
                self._make(c.CreateQueue(queue_name(address, each), {}))
        elif spec is None and name not in self._made and self._catalog.declares(name):
            self._make(c.CreateQueue(name, {}))

    def _make(self, command: c.CreateQueue | c.ConfigureAddress) -> None:
        if refused := self.do(command, ""):
            raise Difference(0, f"making of {command[0]}", [], refused)

    def _record(self, command: c.Command) -> ScenarioRecord:
        self._make_if_declared(getattr(command, "queue", ""))
        if isinstance(command, c.Send):
            return self._produced(command)
        fields = {name: value for name, value in command._asdict().items() if value is not None}
        for name in ("queue", "address"):
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
        if isinstance(command, c.CreateQueue):
            with suppress(BadSetting):  # the worker is to refuse it
                fields["settings"] = asdict(self._catalog.spec(command.queue, command.settings))
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(command).__name__).lower()
        return self._partition.control(kind, fields)

    def _produced(self, send: c.Send) -> ScenarioRecord:
        """A producer's record. Its times are absolute: in a session they count from the send."""
        said = {
            h.QUEUE: self._full_name(send.queue),
            h.ID: send.id,
            h.PRIORITY: send.priority if send.priority != c.Send("", "", 0).priority else None,
            h.GROUP: send.group or None,
            h.DELIVER_AT_MS: self._base_ms + send.due_ms if send.due_ms else None,
            h.EXPIRES_AT_MS: self._base_ms + send.expires_at_ms if send.expires_at_ms else None,
            h.DELIVERY_MODE: None if send.persistent else "non_persistent",
            h.XID: self._prefix + send.xid if send.xid else None,
        }
        ours = [(name, str(value).encode()) for name, value in said.items() if value is not None]
        payload: Payload = send.payload
        headers = (*payload.headers, *ours)
        if send.xid:  # it waits for the decision, not for its queue
            return ScenarioRecord(
                self._partition.producer_topic, None, payload.value or b"", headers
            )
        return self._to_queue(send.queue, None, payload.value or b"", headers)

    def _to_queue(
        self, queue: str, key: bytes | None, value: bytes, headers: Headers
    ) -> ScenarioRecord:
        """In the topic of all sends or, where it may have to wait, in one of its own."""
        members = [name for name in self._made if address_of(name) == queue] or [queue]
        slow = [name for name in members if name in self._may_wait]
        if not slow:
            return ScenarioRecord(self._partition.producer_topic, key, value, headers)
        if queue not in self._waiting:
            topics = self._partition.waiting_topics
            free = [topic for topic in topics if topic not in self._waiting.values()]
            if not free:
                raise Difference(0, "destinations that may have to wait", len(topics), "more")
            self._waiting[queue] = free[0]
        waits_for = tuple(map(self._full_name, slow))
        is_held = not self._paused.isdisjoint(slow)
        return ScenarioRecord(self._waiting[queue], key, value, headers, "", waits_for, is_held)
