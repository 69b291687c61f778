"""`ringfaust redrive` on a real worker and broker: a message is sent again, exactly once (R43)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import application, balanced, client_of
from tests.chaos.harness import Application

pytestmark = pytest.mark.kafka


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    queues = {
        "q": {"ring_size": 2, "max_redrives": 1},
        "other": {},
        "thin": {"evicted_payload": "none", "ring_size": 1},
    }
    name = f"again-{tmp_path.name}"
    with application(broker, tmp_path, queues) as app:
        content = {
            "routes": [
                {"topic": app.inputs[0], "queue": "{header:to}", "hop": "never"},
                {"topic": app.inputs[1], "queue": "{header:to}", "hop": "never"},
                {"topic": name, "queue": "{header:ringfaust-queue}", "hop": "never"},
            ],
            "queues": queues,
        }  # fmt: skip
        app.write("queues.yaml", content)
        app.create_topics()
        yield app


def redrive(app: Application, *arguments: str) -> subprocess.CompletedProcess[str]:
    return app.run("redrive", "--config", app.config_dir, *arguments)


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
        planned = redrive(app, "--from", "evicted", "--to", "q", "--id", "A", "--dry-run")
        assert (planned.returncode, planned.stderr) == (0, "")
        assert "1 message would be sent again to queue q" in planned.stdout
        done = redrive(app, "--from", "evicted", "--to", "q", "--id", "A")
        assert (done.returncode, done.stdout) == (0, "1 message sent again to queue q\n")
        await client.until_ready("q", "A", "C")
        await client.say(
            "attach", "q", consumer="me", credit=1, selector="total = 5 AND mine = 'stays'"
        )
        assert (await client.say("reject", "q", consumer="me", message="A", text="no"))["ok"]

        # A second redrive exceeds max_redrives, so the queue refuses it.
        assert redrive(app, "--from", "dead", "--to", "q", "--reason", "rejected").returncode == 0
        assert (await client.reply_to("A"))["reason"] == "bad_command"
        assert redrive(app, "--from", "dead", "--to", "other", "--id", "A").returncode == 0
        await client.until_ready("other", "A")
        await balanced(app, client, "q", "other")


async def test_options_select_the_messages(app: Application) -> None:
    app.new_worker()
    async with client_of(app) as client:
        for number in range(6):
            await client.send(app.inputs[0], [f"m{number}"], "q", number=str(number))
        await client.until_ready("q", "m4", "m5")
        chosen = ("--from", "evicted", "--to", "other", "--selector", "number BETWEEN 1 AND 2")
        assert redrive(app, *chosen).stdout == "2 messages sent again to queue other\n"
        await client.until_ready("other", "m1", "m2")
        assert "0 messages" in redrive(app, *chosen, "--queue", "no.*").stdout
        assert "0 messages" in redrive(app, *chosen, "--since", "2999-01-01T00:00:00Z").stdout
        assert "2 messages" in redrive(app, *chosen, "--dry-run", "--since", "2000-01-01").stdout


async def test_a_message_that_cannot_be_redriven_is_reported(app: Application) -> None:
    app.new_worker()
    async with client_of(app) as client:
        await client.send(app.inputs[0], ["A", "B"], "thin")
        await client.until_ready("thin", "B")
    done = redrive(app, "--from", "evicted", "--to", "q", "--id", "A", "--id", "nobody")
    assert done.returncode == 1
    assert "refused A: bad_command: evicted_payload is none" in done.stdout
    assert "refused nobody: bad_command: no record of the evicted topic has that id" in done.stdout
    for wrong, told in {
        ("--to", "q"): "--id: which messages?",
        ("--to", "q", "--since", "noon"): "--since: 'noon' is not a time",
        ("--to", "q", "--selector", "a = = 1"): "a = = 1",
    }.items():
        done = redrive(app, "--from", "dead", *wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert told in done.stderr
