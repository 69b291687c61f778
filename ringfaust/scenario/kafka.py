"""Scenarios on the Faust host: a real worker process on a real broker, by public protocol alone.

Sends are records with headers, all else is control JSON; tick records are the clock, `list` tells
the state, read_committed consumers see what comes out. One worker with one partition serves all
files. Time in a partition never goes back, so each file's time begins where that of the one before
ended; queues and sessions have a prefix of their own for each file, and the queues are deleted at
its end, which also shows that their accounts balance to the last.

While a queue's pulling is paused (R90) its sends go to a topic of their own: in the topic of all
the others they would hold these up too (R61). Nothing must come of them before it is resumed.

A session's operations are kept by its client and written in one Kafka transaction at the commit
(see `sessions`). At a rollback they are written too, in a transaction that is then aborted: a
worker that acted on them would be found out.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from aiokafka.admin import AIOKafkaAdminClient

from ringfaust.app.broker import EmbeddedBroker
from ringfaust.app.config import WorkerConfig, load
from ringfaust.app.kafka_admin import NewTopic, open_admin
from ringfaust.app.topics import create_topics, wanted_topics
from ringfaust.core import command as c
from ringfaust.core.catalog import Catalog
from ringfaust.scenario import grammar as g
from ringfaust.scenario.agree import agree, seen_of
from ringfaust.scenario.background import BackgroundLoop
from ringfaust.scenario.link import Link, Outcome, Record
from ringfaust.scenario.membership import remove_members
from ringfaust.scenario.player import Difference, Listing, Seen, play
from ringfaust.scenario.process import WorkerProcess
from ringfaust.scenario.sessions import Sessions, unknown_session
from ringfaust.wire import headers as h
from ringfaust.wire.record import Role

START_SECONDS = 120.0
"""How long a worker or a job may take until it answers, also after a crash."""
_LIST_LIMIT = 10_000
_MOST_PAUSED = 4
"""Queues of a file whose pulling may be paused at one time."""


class FaustStage:
    """Starts broker and worker for the first file, and serves all of them.

    Args:
        bootstrap_servers: a broker of the user's own; none: one is started for this.
        lose_state: at each crash the worker loses its RocksDB folder too.
    """

    capabilities: frozenset[str] = frozenset()
    lanes = 1

    def __init__(self, bootstrap_servers: str | None, lose_state: bool = False) -> None:
        self._servers = bootstrap_servers
        self._lose_state = lose_state
        self._opened = ExitStack()
        self._rig: Rig | None = None
        self._files = 0

    def host(self) -> KafkaScenarioHost:
        """A host for the next file."""
        if self._rig is None:
            try:
                self._rig = self._open()
            except BaseException:
                self._opened.close()
                raise
        self._files += 1
        return KafkaScenarioHost(self._rig, f"file-{self._files}.")

    def close(self) -> None:
        """End what was started, and leave nothing behind."""
        self._opened.close()
        self._rig = None

    def play(self, scenario: g.Scenario) -> None:
        """Play a file.

        Raises:
            Difference: it does not hold.
        """
        play(scenario, self.host())

    def _open(self) -> Rig:
        opened = self._opened
        self.folder, config = prepare(opened, self._servers, partitions=1)
        worker = WorkerProcess(self.folder, self.folder / "worker.log")
        opened.callback(worker.stop)

        def crash() -> None:
            worker.kill()
            asyncio.run(remove_members(config.bootstrap_servers, config.application))
            if self._lose_state:
                shutil.rmtree(config.data_dir)
            worker.start()

        loop = opened.enter_context(BackgroundLoop())
        link = open_link(
            opened, loop, lambda: Link(config.bootstrap_servers, config.application, worker)
        )
        rig = Rig(loop, link, config, crash)
        worker.start()
        rig.await_worker()
        return rig


def prepare(opened: ExitStack, servers: str | None, partitions: int) -> tuple[Path, WorkerConfig]:
    """Broker, topics and configuration for a worker or a job; `opened` ends them.

    Returns:
        The folder with the configuration, and what stands in it.
    """
    brokers = servers or opened.enter_context(EmbeddedBroker()).bootstrap_servers
    folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="ringfaust-")))
    _write_config(folder, f"scenario-{uuid.uuid4().hex[:12]}", brokers, partitions)
    config, queues = load(folder)
    if servers:
        names = [topic.name for topic in wanted_topics(config, queues)]
        opened.callback(lambda: asyncio.run(_delete_topics(brokers, names)))
    asyncio.run(_make_topics(config, _producer_topics(config.application)))
    asyncio.run(create_topics(config, queues))
    return folder, config


def open_link(opened: ExitStack, loop: BackgroundLoop, make: Callable[[], Link]) -> Link:
    """A link that is connected; `opened` ends it."""

    async def connect() -> Link:
        link = make()
        try:
            await link.open()
        except BaseException:
            await link.close()
            raise
        return link

    link = loop.run(connect())
    opened.callback(lambda: loop.run(link.close()))
    return link


class Rig:
    """What the files of one partition share: the way to the worker, and the clock."""

    def __init__(
        self, loop: BackgroundLoop, link: Link, config: WorkerConfig, crash: Callable[[], None]
    ) -> None:
        """`crash`: kills the worker and starts it again."""
        self._loop = loop
        self._link = link
        self._crash = crash
        self.producer_topic, *self.paused_topics = _producer_topics(config.application)
        self.control_topic = config.topic(Role.CONTROL)
        self.now_ms = 1
        self._replies = 0

    def await_worker(self) -> None:
        """Return when the worker answers."""
        self.ask("list", {"queue": "nobody"}, START_SECONDS)

    def crash(self) -> None:
        """Kill the worker and start it again."""
        self._crash()
        self.await_worker()

    def step(self, records: Sequence[Record], as_one: bool = False) -> Outcome:
        """Write records, and see that all that the worker wrote of them agrees."""
        outcome = self._loop.run(self._link.step(records, as_one))
        agree(outcome)
        return outcome

    def abort(self, records: Sequence[Record]) -> None:
        """Write records that nobody may act on."""
        self._loop.run(self._link.abort(records))

    def ask(self, kind: str, fields: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The reply to a command that changes nothing."""
        return self._loop.run(self._link.ask(self.control(kind, fields), seconds))

    def left_over(self) -> list[str]:
        """What the worker wrote without reason."""
        return self._loop.run(self._link.left_over())

    def control(self, kind: str, fields: dict[str, Any]) -> Record:
        """A control record that asks for a reply of its own."""
        self._replies += 1
        reply = f"reply-{self._replies}"
        value = json.dumps({"v": 1, "type": kind, "reply": reply, **fields}).encode()
        key = str(fields.get("queue", "")).encode()
        return Record(self.control_topic, key, value, reply=reply)


class KafkaScenarioHost:
    """Plays one file."""

    def __init__(self, rig: Rig, prefix: str) -> None:
        self._rig = rig
        self._prefix = prefix
        self._base_ms = rig.now_ms
        self._sessions = Sessions()
        self._catalog = Catalog({}, {})
        self._made: list[str] = []
        self._paused: dict[str, str] = {}
        """By queue that is not pulled: the topic of its sends."""

    def start(self, scenario: g.Scenario) -> None:
        """Make the scenario's queues, those of a pattern when they are first named."""
        self._catalog = Catalog(scenario.queues, scenario.all_settings())
        for name in scenario.queues:
            if not {"*", "#"} & set(name.split(".")):
                self._make(name)

    def finish(self) -> None:
        """Delete the queues, and see that the worker wrote nothing beyond what it was asked."""
        different: Difference | None = None
        for name in self._made:
            try:
                delete = self._rig.control("delete_queue", {"queue": self._prefix + name})
                self._step(delete._replace(frees=self._prefix + name))
            except Difference as difference:
                different = different or difference
        left_over = self._rig.left_over()
        if different is not None:
            raise different
        if left_over:
            raise Difference(0, "left over", [], left_over)

    def do(self, command: c.Command, session: str) -> list[Seen]:
        """Do one command now, or in an open session."""
        kept = self._sessions.take(command, session)
        if kept is not None:
            return kept
        seen = self._step(self._record(command))
        if isinstance(command, c.Pause | c.Resume) and command.what == "pulling":
            self._note_pulling(command)
        return seen

    def begin(self, session: str) -> list[Seen]:
        """Open a session's transaction."""
        return self._sessions.begin(session)

    def commit(self, session: str) -> list[Seen]:
        """Write all that the session did, as one Kafka transaction."""
        pending = self._sessions.end(session)
        if pending is None:
            return unknown_session(session)
        return self._step(*map(self._record, pending), as_one=True) if pending else []

    def rollback(self, session: str) -> list[Seen]:
        """Abort it, and have the worker take back what the session's consumers hold."""
        pending = self._sessions.end(session)
        if pending is None:
            return unknown_session(session)
        if pending:
            self._rig.abort(list(map(self._record, pending)))
        seen = self._step(self._record(c.Rollback(session)))
        # Of a session without consumers the worker knows nothing, and there is nothing to return.
        return [each for each in seen if each.kind != "refused"]

    def advance(self, now_ms: int) -> list[Seen]:
        """Move the clock, then sweep."""
        self._rig.now_ms = self._base_ms + now_ms
        return self._step(self._rig.control("tick", {"now_ms": self._rig.now_ms}))

    def crash(self) -> list[Seen]:
        """Kill the worker and start it again. What it then does by itself is found by `_step`."""
        self._rig.crash()
        return []

    def listing(self, queue: str) -> Listing:
        """What a queue holds."""
        self._make_if_declared(queue)
        fields = {"queue": self._prefix + queue, "limit": _LIST_LIMIT}
        reply = self._rig.ask("list", fields, START_SECONDS)
        return Listing(**reply["answer"]) if reply["ok"] else Listing([], {}, [], {})

    def _note_pulling(self, command: c.Pause | c.Resume) -> None:
        if isinstance(command, c.Resume):
            self._paused.pop(command.queue, None)
        elif command.queue not in self._paused and command.queue in self._made:
            free = [t for t in self._rig.paused_topics if t not in self._paused.values()]
            if not free:
                raise Difference(0, "queues paused at one time", _MOST_PAUSED, "more")
            self._paused[command.queue] = free[0]

    # --- in the protocol's words -----------------------------------------------------------------

    def _step(self, *records: Record, as_one: bool = False) -> list[Seen]:
        return seen_of(self._rig.step(records, as_one), self._prefix)

    def _make_if_declared(self, queue: str) -> None:
        if queue not in self._made and self._catalog.declares(queue):
            self._make(queue)

    def _make(self, queue: str) -> None:
        fields = {
            "queue": self._prefix + queue,
            "settings": asdict(self._catalog.spec(queue, {})),
        }
        self._made.append(queue)
        if refused := self._step(self._rig.control("create_queue", fields)):
            raise Difference(0, f"create_queue {queue}", [], refused)

    def _record(self, command: c.Command) -> Record:
        self._make_if_declared(getattr(command, "queue", ""))
        if isinstance(command, c.Send):
            return self._produced(command)
        fields = {name: value for name, value in command._asdict().items() if value is not None}
        for name in ("queue", "session"):
            if fields.get(name):
                fields[name] = self._prefix + fields[name]
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(command).__name__).lower()
        record = self._rig.control(kind, fields)
        if isinstance(command, c.Resume) and command.what == "pulling":
            record = record._replace(frees=fields["queue"])
        return record

    def _produced(self, send: c.Send) -> Record:
        """A producer's record. Its times are absolute: in a session they count from the send."""
        said = {
            h.QUEUE: self._prefix + send.queue,
            h.ID: send.id,
            h.PRIORITY: send.priority if send.priority != c.Send("", "", 0).priority else None,
            h.GROUP: send.group or None,
            h.DELIVER_AT_MS: self._base_ms + send.due_ms if send.due_ms else None,
            h.EXPIRES_AT_MS: self._base_ms + send.expires_at_ms if send.expires_at_ms else None,
        }
        headers = tuple(
            (name, str(value).encode()) for name, value in said.items() if value is not None
        )
        value = send.id.encode()
        if topic := self._paused.get(send.queue):
            return Record(topic, None, value, headers, lags_for=self._prefix + send.queue)
        return Record(self._rig.producer_topic, None, value, headers)


# --- setting up ---------------------------------------------------------------------------------


def _producer_topics(application: str) -> list[str]:
    """The one for all sends, and those for the sends to paused queues."""
    paused = [f"{application}.sent-while-paused-{number}" for number in range(_MOST_PAUSED)]
    return [f"{application}.sent", *paused]


def _write_config(folder: Path, application: str, servers: str, partitions: int) -> None:
    worker = {
        "application": application,
        "bootstrap_servers": servers,
        "partitions": partitions,
        "data_dir": str(folder / "data"),
        "clock": "log",
    }
    route = {"queue": f"{{header:{h.QUEUE}}}", "hop": "never"}
    routes = [{"topic": topic, **route} for topic in _producer_topics(application)]
    # A route has to lead to some declared queue; those of the files are created as they come.
    queues = {"routes": routes, "queues": {"unused": {}}}
    (folder / "worker.yaml").write_text(yaml.safe_dump(worker), "utf-8")
    (folder / "queues.yaml").write_text(yaml.safe_dump(queues), "utf-8")


async def _make_topics(config: WorkerConfig, names: Sequence[str]) -> None:
    """The producers' topics, without the brokers' time: here all time comes from ticks."""
    async with open_admin(config) as admin:
        timestamps = {"message.timestamp.type": "CreateTime"}
        await admin.create([NewTopic(name, config.partitions, -1, timestamps) for name in names])


async def _delete_topics(servers: str, names: list[str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.delete_topics(names)
    finally:
        await admin.close()
