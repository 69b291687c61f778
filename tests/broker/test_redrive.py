"""Redrives on a real worker and broker: a message is sent again, exactly once (R43)."""

from __future__ import annotations

import subprocess

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError

from ringfaust.cli.parts import where
from ringfaust.protocol.records import Role
from ringfaust.redrive import send as sending
from ringfaust.redrive.plan import RedriveContext, RedriveRequest, find
from ringfaust.redrive.send import RedriveStopped, send_messages
from tests.broker.clients import balanced, client_of
from tests.chaos.harness import Application

pytestmark = pytest.mark.kafka

QUEUES = {
    "q": {"ring_size": 2, "max_redrives": 1},
    "other": {},
    "thin": {"evicted_payload": "none", "ring_size": 1},
}


def redrive(app: Application, role: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return app.run_inside(role, "redrive", "--yes", "--config", app.config_dir, *arguments)


async def test_an_evicted_message_comes_back_unchanged(app: Application) -> None:
    into = app.inputs[0]
    app.new_worker()
    async with client_of(app) as client:
        more = {
            "ringfaust_priority": "7", "ringfaust_properties": '{"total": 5}',
            "ringfaust_ttl_ms": "600000", "mine": "stays",
        }  # fmt: skip
        await client.send(into, ["A"], "q", **more)
        await client.send(into, ["B", "C"], "q")
        await client.until_ready("q", "B", "C")
        planned = redrive(app, "evicted", "--to", "q", "--id", "A", "--dry-run")
        assert (planned.returncode, planned.stderr) == (0, "")
        assert "1 message would be sent again to queue q" in planned.stdout
        done = redrive(app, "evicted", "--to", "q", "--id", "A")
        assert (done.returncode, done.stdout) == (
            0,
            f"1 message sent again to queue q ({where(app.worker_config)})\n",
        )
        await client.until_ready("q", "A", "C")
        await client.say(
            "attach", "q", consumer="me", credit=1, selector="total = 5 AND mine = 'stays'"
        )
        assert (await client.say("reject", "q", consumer="me", message="A", text="no"))["ok"]

        # A second redrive exceeds max_redrives, so the queue refuses it.
        assert redrive(app, "dead", "--to", "q", "--reason", "rejected").returncode == 0
        assert (await client.reply_to("A"))["reason"] == "bad_command"
        to_other = ("dead", "--to", "other", "--id", "A")
        assert "1 message sent before; --again" in redrive(app, *to_other).stdout
        old_name = ("redrive", "--config", app.config_dir, "--from", *to_other, "--again")
        assert app.run_inside(*old_name).returncode == 0
        await client.until_ready("other", "A")
        await balanced(app, client, "q", "other")


async def test_a_message_is_sent_by_the_routes_in_use_not_by_those_of_the_file(
    app: Application,
) -> None:
    file = (app.config_dir / "queues.yaml").read_text()
    app.new_worker()
    async with client_of(app) as client:
        await client.send(app.inputs[0], ["A", "B", "C"], "q")
        await client.until_ready("q", "B", "C")
        route = {"topic": f"late-{app.inputs[0]}", "queue": "{header:to}", "hop": "never"}
        app.write("queues.yaml", {"routes": [route], "queues": {"q": {"ring_size": 2}}})
        for arguments in (("topics", "create"), ("apply", "--yes")):
            done = app.run_inside(*arguments, "--config", app.config_dir)
            assert done.returncode == 0, done.stderr
        (app.config_dir / "queues.yaml").write_text(file)
        assert redrive(app, "evicted", "--to", "q", "--id", "A").returncode == 0
        await client.until_ready("q", "C", "A")


async def test_options_select_the_messages(running: Application) -> None:
    async with client_of(running) as client:
        for number in range(6):
            await client.send(running.inputs[0], [f"m{number}"], "q", number=str(number))
        await client.until_ready("q", "m4", "m5")
        chosen = ("evicted", "--to", "other", "--selector", "number BETWEEN 1 AND 2")
        assert (
            redrive(running, *chosen).stdout
            == f"2 messages sent again to queue other ({where(running.worker_config)})\n"
        )
        await client.until_ready("other", "m1", "m2")
        assert "0 messages" in redrive(running, *chosen, "--queue", "no.*").stdout
        assert "0 messages" in redrive(running, *chosen, "--since", "2999-01-01T00:00:00Z").stdout
        chosen = (*chosen, "--again")
        dated = redrive(running, *chosen, "--dry-run", "--since", "2000-01-01")
        assert "2 messages" in dated.stdout


async def test_a_message_that_cannot_be_redriven_is_reported(running: Application) -> None:
    async with client_of(running) as client:
        await client.send(running.inputs[0], ["A", "B"], "thin")
        await client.until_ready("thin", "B")
    done = redrive(running, "evicted", "--to", "q", "--id", "A", "--id", "nobody")
    assert done.returncode == 1
    assert "refused A: bad_command: evicted_payload is or was none" in done.stdout
    assert "refused nobody: bad_command: no record of the evicted topic has that id" in done.stdout
    for wrong, result in {
        ("--to", "q"): "--id: name the messages",
        ("--to", "q", "--since", "noon"): "--since: 'noon' is not a time",
        ("--to", "q", "--selector", "a = = 1"): "a = = 1",
    }.items():
        done = redrive(running, "dead", *wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert result in done.stderr


async def evicted(app: Application, count: int) -> None:
    """Evict messages m0, m1 … from queue q."""
    app.new_worker()
    async with client_of(app) as client:
        await client.send(app.inputs[0], [f"m{number}" for number in range(count + 2)], "q")
        await client.until_ready("q", f"m{count}", f"m{count + 1}")
    app.end()


async def redriven(app: Application) -> tuple[list[str], int]:
    """The ids of the redriven messages in their topic, and the number of transactions of those."""
    tp = TopicPartition(app.inputs[0], 0)
    found, offsets = [], []
    async with AIOKafkaConsumer(
        bootstrap_servers=app.servers, isolation_level="read_committed"
    ) as consumer:
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        consumer.seek(tp, 0)
        while await consumer.position(tp) < end:
            for record in (await consumer.getmany(tp, timeout_ms=200)).get(tp, ()):
                headers = dict(record.headers)
                if "ringfaust-redrives" in headers:
                    found.append(headers["ringfaust-id"].decode())
                    offsets.append(record.offset)
    # A transaction ends with a marker, which takes an offset.
    parts = 1 + sum(after - before > 1 for before, after in zip(offsets, offsets[1:], strict=False))
    return found, parts


async def test_a_second_redrive_sends_only_what_was_not_sent(app: Application) -> None:
    await evicted(app, 4)
    everything = ("evicted", "--to", "q", "--reason", "overflow")
    assert redrive(app, "evicted", "--to", "q", "--id", "m2").returncode == 0
    assert redrive(app, *everything).stdout == (
        f"3 messages sent again to queue q ({where(app.worker_config)})\n"
        "1 message sent before; --again sends them once more\n"
    )
    again = redrive(app, *everything)
    assert (again.returncode, again.stdout) == (
        0,
        f"0 messages sent again to queue q ({where(app.worker_config)})\n"
        "4 messages sent before; --again sends them once more\n",
    )
    assert (await redriven(app))[0] == ["m2", "m0", "m1", "m3"]
    assert (
        redrive(app, *everything, "--again").stdout
        == f"4 messages sent again to queue q ({where(app.worker_config)})\n"
    )
    assert (await redriven(app))[0] == ["m2", "m0", "m1", "m3", "m0", "m1", "m2", "m3"]
    assert "0 messages" in redrive(app, *everything).stdout


async def test_a_redrive_that_stops_halfway_sends_the_rest_later(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many transactions, so that none exceeds the brokers' timeout of 60 s."""
    await evicted(app, 10)
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 2)
    context = RedriveContext.of(app.worker_config, app.queues_config)
    request = RedriveRequest(role=Role.EVICTED, to="q", reason="overflow")
    plan = await find(context, request)
    commit, left = AIOKafkaProducer.commit_transaction, iter(range(3))

    async def fail_late(producer: AIOKafkaProducer) -> None:
        """The third transaction has sent its messages, and is never committed."""
        if next(left) == 2:
            raise KafkaConnectionError("closed")
        await commit(producer)

    with monkeypatch.context() as patched:
        patched.setattr(AIOKafkaProducer, "commit_transaction", fail_late)
        with pytest.raises(RedriveStopped, match="after 4 messages were sent"):
            await send_messages(context, plan.messages)
    assert await send_messages(context, plan.messages) == 6
    ids, transactions = await redriven(app)
    assert ids == [f"m{number}" for number in range(10)]
    assert transactions >= 5
    assert (await find(context, request)).already_sent == 10
