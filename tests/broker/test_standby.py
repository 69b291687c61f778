"""A standby takes over what a worker had, without reading its changelog again (R127)."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import Client, client_of
from tests.broker.test_membership import patient, share
from tests.chaos.harness import Application, Worker, until

pytestmark = pytest.mark.kafka

DEADLINE_S = 90
MESSAGES = 10_000
FEW = 1_000
"""What the tail of a changelog may have at most: far less than the state."""


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    settings = {"partitions": 1, "max_record_bytes": 1_000}
    with patient(broker, tmp_path, failover_after_ms=1_000, **settings) as app:
        yield app


def applied(worker: Worker) -> list[int]:
    """How many records of the changelog it has applied, each time that it opened the partition."""
    return [int(each) for each in re.findall(r"partition 0: (\d+) records of", worker.log_text())]


async def owner_and_standby(app: Application) -> tuple[Worker, Worker]:
    """Two workers, once the second one follows the partition of the first."""
    first = app.new_worker()
    await until(lambda: share(first) == {0}, DEADLINE_S, "one has the partition")
    second = app.new_worker()
    await until_caught_up(app, first)
    return first, second


async def until_caught_up(app: Application, owner: Worker) -> None:
    """Wait until another worker has the whole changelog."""

    def is_caught_up() -> bool:
        found = json.loads(app.run("worker", "ls", "--json", *arguments).stdout)
        live = [each for each in found if not each["is_stale"]]
        return any(each["standbys"] == {"0": 0} and not each["partitions"] for each in live)

    arguments = ("--config", str(app.config_dir))
    await until(is_caught_up, DEADLINE_S, f"a standby of {owner.name} is caught up")


async def send_many(app: Application, client: Client) -> None:
    ids = [f"m{number}" for number in range(MESSAGES)]
    await client.send(app.inputs[0], ids, "q")
    await until_added(client, MESSAGES)


async def until_added(client: Client, messages: int) -> None:
    while (await client.counts("q"))["added"] < messages:
        pass  # each look is a command and its reply


@pytest.mark.timeout(300)
async def test_a_standby_takes_over_and_applies_only_the_last_records(app: Application) -> None:
    owner, standby = await owner_and_standby(app)
    async with client_of(app) as client:
        await send_many(app, client)
        await until_caught_up(app, owner)
        before = len(applied(standby))
        await client.send(app.inputs[0], ["last"], "q")
        await until_added(client, MESSAGES + 1)
        owner.kill()
        await until(lambda: share(standby) == {0}, DEADLINE_S, "the standby serves")
        assert (await client.counts("q"))["added"] == MESSAGES + 1
        assert sum(applied(standby)[before:]) < FEW

        # The dead one comes back without its disk: its standby store is rebuilt.
        owner.wipe()
        owner.start()
        await until_caught_up(app, standby)
        assert sum(applied(owner)[-1:]) > MESSAGES
        await client.send(app.inputs[0], ["after"], "q")
        await until_added(client, MESSAGES + 2)
        before = len(applied(owner))
        standby.kill()
        await until(lambda: share(owner) == {0}, DEADLINE_S, "it serves again")
        assert (await client.counts("q"))["added"] == MESSAGES + 2
        assert sum(applied(owner)[before:]) < FEW


@pytest.mark.timeout(300)
async def test_a_standby_with_a_damaged_store_takes_over_nevertheless(app: Application) -> None:
    owner, standby = await owner_and_standby(app)
    async with client_of(app) as client:
        await client.send(app.inputs[0], ["a", "b"], "q")
        await client.until_ready("q", "a", "b")
        await until_caught_up(app, owner)
        standby.kill()
        for path in (standby.data_dir / "partition-0").glob("CURRENT"):
            path.unlink()
        before = len(applied(standby))
        standby.start()
        await until(lambda: len(applied(standby)) > before, DEADLINE_S, "it is rebuilt")
        assert [*standby.data_dir.glob("partition-0.set-aside-*")]
        shutil.rmtree(owner.data_dir)  # under its feet
        owner.kill()
        await until(lambda: share(standby) == {0}, DEADLINE_S, "the standby serves")
        await client.until_ready("q", "a", "b")
