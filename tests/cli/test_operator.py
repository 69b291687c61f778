"""The operator's commands on a live worker, each also with a mistake."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from generate.files import ROOT
from generate.schemas import OUTPUTS, output_file
from ringfaust import __version__
from ringfaust.cli.main import main
from ringfaust.client import Admin, RingConsumer, RingProducer, TwoPhase
from ringfaust.protocol.partitioner import partition_of
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application
from tests.cli.test_help import COMMANDS, name_of

pytestmark = pytest.mark.kafka

QUEUES = {
    "routes": [{"topic": "op-in", "queue": "{header:to}"}],
    "queues": {"orders": {"ring_size": 3}, "parked": {}, "by.#": {"ring_size": 2}},
}


MISTAKES = {
    "queue ls --application nobody": "there is no topic nobody.replies",
    "queue show nobody": "unknown_queue 'nobody'",
    "queue set orders ring_sise=5": "did you mean 'ring_size'",
    "queue set orders ring_size=many": "ring_size = 'many'",
    "queue set orders ring_size": "NAME=VALUE",
    "queue reset nobody": "unknown_queue 'nobody'",
    "queue reset orders ring_sise": "did you mean 'ring_size'",
    "queue create orders ring_size=5": "orders",
    "queue pause nobody": "unknown_queue",
    "queue pause orders --what everything": "everything",
    "queue resume nobody": "unknown_queue",
    "queue purge nobody --yes": "unknown_queue",
    "queue purge orders": "add --yes",
    "queue move nobody parked --yes": "unknown_queue",
    "queue delete nobody --yes": "unknown_queue",
    "queue watch # --every-s 0": "every-s",
    "message browse nobody": "unknown_queue",
    "message browse orders --state lost": "lost",
    "message browse orders --selector priority>": "bad_selector",
    "message show nobody m": "unknown_queue",
    "message remove orders nothing --yes": "nothing",
    "message move orders nothing parked": "nothing",
    "message deliver-now orders nothing": "nothing",
    "message cancel orders nothing --yes": "nothing",
    "consumer ls nobody": "unknown_queue",
    "consumer close orders nobody --yes": "nobody",
    "xid ls --application nobody": "there is no topic nobody.replies",
    "xid commit nothing --yes": "no partition has this transaction",
    "xid rollback nothing --yes": "no partition has this transaction",
    "dead ls --since noon": "'noon' is not a time",
    "dead ls --selector priority>": "selector",
    "dead ls --application nobody": "there is no topic nobody.dead",
    "dead redrive --yes": "--id: name the messages",
    "dead redrive --reason rejected --to here --partition x": "partition",
    "evicted tail --limit 0": "limit",
    "evicted count --since noon": "'noon' is not a time",
    "evicted redrive --since noon": "'noon' is not a time",
    "scheduled ls --limit 0": "limit",
    "worker ls --application nobody": "there is no topic nobody.status: check the application name",
    "partition ls --application nobody": "there is no topic nobody.status",
    "partition show 7": "no worker reports a partition 7",
    "partition retry 1": "partition 1 has not stopped: it is serving",
    "partition skip 1 op-in/1/0 --yes": "partition 1 has not stopped: it is serving",
    "upgrade status --application nobody": "there is no topic nobody.",
    "upgrade finish": "add --yes",
    "trace": "name a message",
    "trace m --since noon": "is not a time",
    "trace m --since 3600": "'3600' has no unit",
    "send op-ni x": "did you mean op-in?",
    "send op-in x --header region": "write headers as NAME=VALUE",
    "send op-in x --lines": "give no BODY",
    "receive nobody": "unknown_queue 'nobody'",
    "receive orders --wait 5": "'5' has no unit",
    "receive by.nobody --settle ack": "unknown_queue 'by.nobody'",
    "trace m --lake /nowhere": "--lake: /nowhere/silver/records cannot be read",
}
"""What the message says."""
ELSEWHERE = {
    "partition retry": "tests/broker/test_stopped.py",
    "partition skip": "tests/broker/test_stopped.py",
    "console": "tests/console",
    "mcp": "tests/console/test_mcp.py",
    "init": "tests/cli/test_init_on_a_broker.py",
    "redrive": "tests/broker/test_redrive.py",
    "restore": "tests/broker/test_restore.py",
    "context ls": "tests/cli/test_context.py",
    "context use": "tests/cli/test_context.py",
    "context show": "tests/cli/test_context.py",
    "context add": "tests/cli/test_context.py",
    "context rm": "tests/cli/test_context.py",
    "top": "tests/cli/test_top.py",
}
"""Commands that are tested there."""


class Operator:
    """Runs commands against the application, and sends messages to it."""

    def __init__(self, app: Application) -> None:
        self.where: dict[str, Any] = {
            "bootstrap_servers": app.servers,
            "application": app.worker_config.application,
        }
        self.place = f"application {app.worker_config.application} at {app.servers}"
        self.app = app
        self._folder = str(app.config_dir)
        self.worked: set[str] = set()
        self.printed_json: set[str] = set()
        """Commands that have run without a mistake, and those with --json."""

    async def ready(self) -> None:
        """Wait until a worker answers for every partition."""
        async with Admin(**self.where) as admin:
            await admin.queues()

    def run(self, *arguments: str, status: int = 0, given: str | bytes = "") -> str:
        """Run a command; return what it prints to standard output, or to error if it fails."""
        result = CliRunner().invoke(main, [*arguments, "--config", self._folder], input=given)
        assert result.exit_code == status, (result.output, result.exception)
        assert "Traceback" not in result.output
        if status == 0:
            self.worked.add(name_of(arguments))
        return result.stdout if status == 0 else result.stderr or result.stdout

    def run_until(self, shown: str, *arguments: str) -> str:
        """Run a command until it prints something that contains a text."""
        for _ in range(200):
            if shown in (printed := self.run(*arguments)):
                return printed
        raise AssertionError(f"{arguments} does not print {shown}: {printed}")

    def json(self, *arguments: str) -> Any:
        """What a command prints with --json; it fits the published schema of the command."""
        import jsonschema  # noqa: PLC0415 - only the tests with a broker need it

        found = json.loads(self.run(*arguments, "--json"))
        name = name_of(arguments)
        self.printed_json.add(name)
        schema = json.loads((ROOT / output_file(name)).read_text("utf-8"))
        for part in (schema, *schema.get("$defs", {}).values()):
            if "required" in part:  # a field that the schema does not have is a mistake here
                part["additionalProperties"] = False
        jsonschema.validate(found, schema)
        return found

    def send(self, queue: str, *ids: str, **options: Any) -> None:
        asyncio.run(self._send(queue, ids, options))

    async def _send(self, queue: str, ids: tuple[str, ...], options: dict[str, Any]) -> None:
        async with RingProducer(**self.where) as producer:
            async with producer.transaction():
                for each in ids:
                    await producer.send(
                        "op-in", f"body of {each}", id=each, key=queue, headers={"to": queue},
                        **options,
                    )  # fmt: skip
        await asyncio.to_thread(self._await_messages, queue, ids)

    def _await_messages(self, queue: str, ids: tuple[str, ...]) -> None:
        for _ in range(200):
            result = CliRunner().invoke(main, ["trace", ids[-1], "--config", self._folder])
            if result.exit_code == 0:
                return
        raise AssertionError(
            f"{ids[-1]} did not reach {queue}: {result.output} {result.exception!r}"
        )


@pytest.fixture(scope="module")
def operator(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    app = Application(
        tmp_path_factory.mktemp("operator"), broker.bootstrap_servers, QUEUES, partitions=2
    )
    app.create_topics()
    app.new_worker()
    running = Operator(app)
    asyncio.run(running.ready())
    yield running
    app.end()


def test_queues_are_listed_shown_and_set(operator: Operator) -> None:
    operator.send("by.ls", "ls-1", "ls-2", "ls-3")
    listed = {each["queue"]: each for each in operator.json("queue", "ls")}
    assert {"orders", "parked", "by.ls"} <= listed.keys()
    assert listed["by.ls"]["counts"]["evicted"] == 1
    table = operator.run("queue", "ls", "by.ls").splitlines()
    assert table[0].split() == ["queue", "partition", "ring", "size", "ready", "added", "evicted"]
    assert table[1].split() == ["by.ls", "1", "2", "2", "3", "1"]
    done = operator.run("queue", "set", "by.ls", "ring_size=5")
    assert done == f"by.ls: set ring_size = 5 ({operator.place})\n"
    shown = operator.json("queue", "show", "by.ls")
    assert shown["settings"]["ring_size"] == 5
    assert shown["counts"]["ready"] == 2
    assert shown["own"] == {"ring_size": 5}
    lines = [each.split() for each in operator.run("queue", "show", "by.ls").splitlines()]
    assert ["ring_size", "5", "set", "live"] in lines
    operator.run("queue", "set", "by.ls", "redelivery_delay_ms=2000")
    done = operator.run("queue", "reset", "by.ls", "redelivery_delay_ms")
    assert done == f"by.ls: took back redelivery_delay_ms ({operator.place})\n"
    done = operator.run("queue", "reset", "by.ls", "ring_size")
    assert done == f"by.ls: took back ring_size ({operator.place})\n"
    lines = [each.split() for each in operator.run("queue", "show", "by.ls").splitlines()]
    assert ["ring_size", "2", "configuration"] in lines
    assert "nothing to take back" in operator.run("queue", "reset", "by.ls")


def test_a_queue_is_created_paused_purged_moved_and_deleted(operator: Operator) -> None:
    assert "created" in operator.run("queue", "create", "made", "ring_size=10")
    operator.send("made", "made-1", "made-2", "made-3")
    operator.run("queue", "pause", "made")
    assert operator.json("queue", "show", "made")["paused"] == ["dispatch"]
    operator.run("queue", "resume", "made")
    assert operator.json("queue", "show", "made")["paused"] == []
    operator.run("queue", "purge", "made", "--yes")
    assert operator.json("queue", "show", "made")["counts"]["evicted"] == 3
    operator.run("queue", "delete", "made", "--yes")
    assert "unknown_queue" in operator.run("queue", "show", "made", status=2)


def test_ready_messages_move_to_another_queue_of_the_partition(operator: Operator) -> None:
    here = operator.json("queue", "show", "orders")["partition"]
    other = next(
        name for name in (f"by.move{n}" for n in range(50)) if partition_of(name, 2) == here
    )  # fmt: skip
    operator.send("orders", "mv-1", "mv-2")
    operator.send(other, "mv-0")
    assert "moved 1 messages" in operator.run("queue", "move", "orders", other, "--most", "1", "-y")
    operator.run("message", "move", "orders", "mv-2", other)
    found = operator.json("message", "browse", other)
    assert [each["id"] for each in found] == ["mv-1", "mv-2"]


def test_messages_are_sent_and_received(operator: Operator) -> None:
    to = ("send", "op-in", "--header", "to=by.sent", "--key", "k")
    said = operator.run(*to, "a dozen eggs")
    assert re.match(r"op-in/\d/\d+: sent to op-in \(application ", said)
    said = operator.run(*to, "--lines", given="milk\n\nbread\x1b[2J\n")
    assert re.match(r"2 messages, op-in/\d/\d+ to op-in/\d/\d+: sent to op-in \(app", said)
    browse = ("receive", "by.sent", "--max", "5")
    assert operator.run_until("bread", *browse) == "milk\nbread\\x1b[2J\n"
    found = operator.json("receive", "by.sent")
    assert (found["value"], found["key"], found["headers"]) == ("milk", "k", {"to": "by.sent"})
    operator.run(*to, given=b"\xff\x00")
    operator.run_until("base64:/wA=", *browse)
    take = ("--max", "2", "--wait", "10s")
    said = operator.run("receive", "by.sent", "--settle", "release", *take)
    assert said == "bread\\x1b[2J\nbase64:/wA=\n"
    counts = operator.json("queue", "show", "by.sent")["counts"]
    assert (counts["ready"], counts["acked"]) == (2, 0)
    assert operator.run("receive", "by.sent", "--settle", "ack", *take) == said
    assert operator.json("queue", "show", "by.sent")["counts"]["acked"] == 2
    assert operator.run("receive", "by.sent", "--settle", "ack", "--wait", "1ms", status=1) == (
        f"0 messages of by.sent acked ({operator.place})\n"
    )
    assert "there is nothing to send" in operator.run(*to, status=2)
    said = operator.run(*to, "--lines", given=b"one\n" + b"x" * (1 << 20), status=2)
    assert said.startswith("1 messages were sent before it ended, the last one is op-in/")
    assert "a message is larger than 1 MiB" in said


def test_messages_are_browsed_shown_and_removed(operator: Operator) -> None:
    operator.send("by.browse", "b-1", "b-2")
    assert "body of b-1" in operator.run("message", "browse", "by.browse")
    (only,) = operator.json("message", "browse", "by.browse", "--limit", "1")
    assert only["id"] == "b-1"
    shown = operator.run("message", "show", "by.browse", "b-2")
    assert "body of b-2" in shown
    assert "header to" in shown
    assert operator.json("message", "show", "by.browse", "b-2")["value"]["start"] == "body of b-2"
    operator.run("message", "remove", "by.browse", "b-2", "--yes")
    assert "trace b-2" in operator.run("message", "show", "by.browse", "b-2", status=2)


def test_scheduled_messages_are_delivered_now_or_cancelled(operator: Operator) -> None:
    operator.send("by.later", "l-1", "l-2", delay_ms=3_600_000)
    found = operator.json("message", "browse", "by.later", "--state", "scheduled")
    assert [each["id"] for each in found] == ["l-1", "l-2"]
    operator.run("message", "deliver-now", "by.later", "l-1")
    operator.run("message", "cancel", "by.later", "l-2", "--yes")
    counts = operator.json("queue", "show", "by.later")["counts"]
    assert (counts["ready"], counts["scheduled"], counts["removed"]) == (1, 0, 1)


def test_a_stuck_consumer_is_found_and_closed(operator: Operator) -> None:
    operator.send("by.stuck", "s-1")

    async def hold() -> None:
        consumer = RingConsumer("by.stuck", name="sleeper", credit=1, **operator.where)
        async with consumer:
            message = await consumer.receive()
            assert message is not None
            (found,) = await asyncio.to_thread(operator.json, "consumer", "ls", "by.stuck")
            assert (found["consumer"], found["unsettled"]) == ("sleeper", 1)
            assert "sleeper" in await asyncio.to_thread(operator.run, "consumer", "ls", "by.stuck")
            close = ("consumer", "close", "by.stuck", "sleeper", "--yes")
            await asyncio.to_thread(operator.run, *close)
            shown = await asyncio.to_thread(operator.json, "queue", "show", "by.stuck")
            assert shown["counts"]["ready"] == 1
            assert shown["consumers"] == []

    asyncio.run(hold())


def test_transactions_are_listed_and_decided(operator: Operator) -> None:
    async def leave(xid: str) -> None:
        async with TwoPhase(xid, **operator.where) as transaction:
            await transaction.begin()
            await transaction.prepare()

    for xid in ("left-1", "left-2"):
        asyncio.run(leave(xid))
    assert [each["xid"] for each in operator.json("xid", "ls")] == ["left-1", "left-2"]
    assert "left-1" in operator.run("xid", "ls")
    operator.run("xid", "commit", "left-1", "--yes")
    operator.run("xid", "rollback", "left-2", "--yes")
    assert operator.run("xid", "ls") == "no transaction is undecided\n"


def test_evicted_messages_are_shown_counted_and_redriven(operator: Operator) -> None:
    operator.send("by.gone", "g-1", "g-2", "g-3", "g-4")
    table = operator.run("evicted", "tail", "--queue", "by.gone").splitlines()
    assert table[0].split() == ["id", "queue", "reason", "cause", "at", "age"]
    assert [line.split()[:4] for line in table[1:]] == [
        ["g-1", "by.gone", "overflow", "g-3"], ["g-2", "by.gone", "overflow", "g-4"],
    ]  # fmt: skip
    assert max(map(len, table)) <= 80
    (last,) = operator.json("evicted", "tail", "--queue", "by.gone", "-n", "1")
    assert (last["id"], last["value"]) == ("g-2", "body of g-2")
    counts = operator.run("evicted", "count", "--queue", "by.gone").splitlines()
    assert [line.split() for line in counts] == [
        ["queue", "overflow", "total"], ["by.gone", "2", "2"]
    ]  # fmt: skip
    assert operator.json("evicted", "count", "--queue", "by.gone", "--since", "2000-01-01") == [
        {"queue": "by.gone", "reason": "overflow", "messages": 2}
    ]
    one = ("evicted", "redrive", "--queue", "by.gone", "--id", "g-1")
    planned = operator.run(*one, "--dry-run")
    assert "1 message would be sent again" in planned
    evicts = "A ring that is full evicts its oldest message for each one that enters."
    assert evicts in planned
    asked = operator.run(*one, status=2)
    assert f"{evicts} That is in the application {operator.where['application']} at " in asked
    assert "Nothing was changed: add --yes" in asked
    sent = operator.run(*one, "-y")
    assert sent.startswith("1 message sent again to the queues they were in (application ")
    told = operator.run_until("redriven once", "trace", "g-1")
    assert "Then it was redriven to queue by.gone (number 5)." in told
    result = operator.json(*one, "-y")
    assert (result["sent"], result["already_sent"]) == (0, 1)


def test_dead_messages_are_listed_and_redriven(operator: Operator) -> None:
    operator.send("by.dead", "d-1")

    async def reject() -> None:
        async with RingConsumer("by.dead", **operator.where) as consumer:
            message = await consumer.receive()
            assert message is not None
            await message.reject(
                "an order without content, and more than fits into a line of this table",
                confirm=True,
            )

    asyncio.run(reject())
    table = operator.run("dead", "ls", "--queue", "by.dead").splitlines()
    assert table[0].split() == ["id", "queue", "reason", "at", "tries", "text"]
    assert table[1].split()[:3] == ["d-1", "by.dead", "rejected"]
    assert max(map(len, table)) <= 80
    (found,) = operator.json("dead", "ls", "--reason", "rejected", "--selector", "to = 'by.dead'")
    assert found["text"].endswith("this table")
    assert operator.run("dead", "ls", "--reason", "expired") == "no dead message matches\n"
    assert operator.json("dead", "redrive", "--queue", "by.dead", "--yes")["sent"] == 1
    operator.run_until("d-1", "message", "browse", "by.dead")
    elsewhere = ("dead", "redrive", "--queue", "by.dead", "--to", "orders", "--again", "--yes")
    assert "no route leads message 'd-1'" in operator.run(*elsewhere, status=2)


def test_the_latest_evicted_messages_are_found_going_backwards(operator: Operator) -> None:
    """Also those of a queue that are far behind the latest ones of others."""
    operator.send("by.rare", "r-1", "r-2", "r-3")
    operator.send("by.often", *(f"o-{number}" for number in range(600)))
    (rare,) = operator.json("evicted", "tail", "--queue", "by.rare")
    assert rare["id"] == "r-1"
    latest = [each["id"] for each in operator.json("evicted", "tail", "--limit", "3")]
    assert latest == ["o-595", "o-596", "o-597"]


def test_scheduled_messages_are_listed_by_their_time(operator: Operator) -> None:
    operator.send("by.when", "when-2", delay_ms=7_200_000)
    operator.send("by.then", "when-1", delay_ms=3_600_000)
    table = operator.run("scheduled", "ls", "by.*").splitlines()
    assert [line.split()[0] for line in table] == ["id", "when-1", "when-2"]
    (first,) = operator.json("scheduled", "ls", "--limit", "1")
    assert (first["id"], first["queue"]) == ("when-1", "by.then")
    assert operator.run("scheduled", "ls", "orders") == "no scheduled message matches\n"


def test_watch_shows_rates(operator: Operator) -> None:
    operator.send("by.watch", "w-1")
    shown = operator.run("queue", "watch", "by.watch", "--times", "2", "--every-s", "0.2")
    assert "by.watch" in shown
    assert "added/s" in shown


def test_trace_tells_a_messages_life(operator: Operator) -> None:
    operator.send("by.trace", "t-1", "t-2", "t-3")
    evicted = operator.run("trace", "t-1")
    assert "Message t-1 in queue by.trace (number 1): evicted to make room for t-3" in evicted
    assert "the ring was full (2 of 2)" in evicted
    assert "it is in the queue, ready" in operator.run("trace", "t-3")
    source = operator.json("trace", "t-2")["lifecycles"][0]["source"]
    assert "Message t-2" in operator.run("trace", source)
    unseen = operator.run("trace", "nobody", status=1)
    assert "No event since" in unseen
    assert "--since" in unseen
    beyond = operator.run("trace", "op-in/0/999999", status=1)
    assert "does not exist yet" in beyond
    elsewhere = operator.run("trace", f"{operator.where['application']}.events/0/0", status=1)
    assert "that record is in the topic" in elsewhere
    assert "no route of queues.yaml reads topic" in elsewhere


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_explained(operator: Operator, arguments: str) -> None:
    assert MISTAKES[arguments] in operator.run(*arguments.split(), status=2)


def test_the_worker_is_listed_without_being_asked(operator: Operator) -> None:
    operator.run_until("0-1", "worker", "ls")  # it publishes its partitions once a second
    (found,) = operator.json("worker", "ls")
    assert found["partitions"] == [0, 1]
    assert found["is_stale"] is False
    table = operator.run("worker", "ls").splitlines()
    assert len(table) == 2
    assert table[1].split()[:4] == [found["worker"], "0-1", "none", "ready"]
    assert max(map(len, table)) <= 80


def test_partitions_are_listed_without_a_worker_being_asked(operator: Operator) -> None:
    found = operator.json("partition", "ls")
    assert [(each["partition"], each["state"]) for each in found] == [
        ("0", "serving"), ("1", "serving"),
    ]  # fmt: skip
    assert operator.json("partition", "show", "1") == found[1]
    assert "serving" in operator.run("partition", "show", "1")


def test_doctor_finds_nothing_wrong_with_a_live_worker(operator: Operator) -> None:
    by_check = {each["check"]: each["level"] for each in operator.json("doctor")}
    assert {by_check[name] for name in by_check if name != "disk"} == {"ok"}
    assert "0 failed" in operator.run("doctor")


def test_the_configuration_and_its_topics_are_printed_as_json(operator: Operator) -> None:
    application = operator.where["application"]
    planned = {each["topic"]: each for each in operator.json("topics", "plan")}
    assert planned[f"{application}.control"]["partitions"] == 2
    assert planned["op-in"]["partitions"] is None
    assert {(each["state"], *each["differences"]) for each in planned.values()} == {
        ("as declared",)
    }
    assert operator.json("topics", "verify") == []
    checked = operator.json("config", "check")
    assert (checked["application"], checked["queues"]) == (application, 3)
    assert [each["topic"] for each in checked["routes"]] == ["op-in"]
    settings = {each["name"]: each["value"] for each in operator.json("config", "show")}
    assert (settings["application"], settings["web.token_file"]) == (application, None)


def test_the_configuration_is_compared_applied_and_listed(operator: Operator) -> None:
    assert operator.json("diff") == {
        "revision": 0, "differences": [], "behind": {}, "needs_stop": False
    }  # fmt: skip
    assert "nothing differs from revision 0" in operator.run("diff")
    assert operator.json("apply", "--yes")["revision"] == 0
    assert "nothing differs from revision 0" in operator.run("apply", "--yes")
    assert operator.json("history") == []
    assert "nothing was applied yet" in operator.run("history")
    assert "nothing was applied yet" in operator.json("config", "check")["log"]


def test_what_differs_from_the_log_is_named_and_then_since_when_it_counts(
    operator: Operator,
) -> None:
    def changed(ring_size: int) -> None:
        queues = QUEUES["queues"] | {"orders": {"ring_size": ring_size}}
        operator.app.write("queues.yaml", QUEUES | {"queues": queues})

    changed(4)
    assert operator.json("apply", "--yes", "--by", "ann")["revision"] == 1
    changed(5)
    difference = "~ queues orders  ring_size: 4 -> 5"
    checked = operator.json("config", "check")
    assert checked["log"] == "differs from revision 1, which is in effect"
    assert checked["differences"] == [difference]
    assert f"\n  {difference}\n" in operator.run("config", "check")
    found = {each["check"]: each["text"] for each in operator.json("doctor")}
    assert found["configuration"].endswith(f"revision 1, which is in effect: {difference}")
    since = operator.json("queue", "show", "orders")["since"]
    assert {name: (each["revision"], each["who"]) for name, each in since.items()} == {
        "ring_size": (1, "ann")
    }  # fmt: skip
    lines = [each.split() for each in operator.run("queue", "show", "orders").splitlines()]
    (line,) = [each for each in lines if each[:1] == ["ring_size"]]
    assert line[1:8] == ["4", "revision", "1,", "applied", "by", "ann", "at"]
    changed(4)
    assert operator.json("config", "check")["log"] == "is as revision 1, which is in effect"


def test_an_upgrade_is_looked_at_and_finished(operator: Operator) -> None:
    assert "all workers support level 2" in operator.run("upgrade", "status", status=1)
    done = operator.json("upgrade", "finish", "--yes", "--by", "ann")
    assert done == {"level": 2, "partitions": [0, 1], "waiting": []}
    operator.run_until(f"{__version__}    2 ", "worker", "ls")  # the worker has published it
    assert "nothing to do: feature level 2 is in use" in operator.run("upgrade", "finish", "--yes")
    found = operator.json("upgrade", "status")
    assert (found["level"], found["newest"], found["who"]) == (2, 2, "ann")
    assert (found["behind"], found["too_old"], found["silent"]) == ({}, [], 0)
    (worker,) = found["workers"]
    assert (worker["version"], worker["oldest"], worker["newest"]) == (__version__, 1, 2)
    assert "level 2 is in use, since" in operator.run("upgrade", "status")
    assert f"version {__version__}, level 2" in operator.run("doctor")


def test_every_operators_command_has_run(
    operator: Operator, request: pytest.FixtureRequest
) -> None:
    """A new command needs a test above; the mistakes are compared in test_mistakes.py."""
    here = {each.function for each in request.session.items if each.path == request.path}
    if here != {each for name, each in globals().items() if name.startswith("test_")}:
        pytest.skip("only some tests of this file run")
    expected = {
        name
        for name, command in COMMANDS.items()
        if any("--application" in each.opts for each in command.params)
    }
    assert operator.worked == (expected | OUTPUTS.keys()) - ELSEWHERE.keys()
    assert operator.printed_json == OUTPUTS.keys() - ELSEWHERE.keys()
