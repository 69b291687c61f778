"""What a worker finds on its disk when it starts: damage, or another worker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import Client, all_came_once, application, client_of, some
from tests.chaos.harness import Application, Worker, until

pytestmark = pytest.mark.kafka

KEPT = 50


@pytest.fixture
def app(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Application]:
    with application(broker, tmp_path, {"q": {"ring_size": KEPT}}) as app:
        yield app


def partition_folder(worker: Worker) -> Path:
    return worker.data_dir / "partition-0"


def delete_a_table(folder: Path) -> None:
    next(folder.glob("*.sst")).unlink()


def shorten_the_manifest(folder: Path) -> None:
    newest = max(folder.glob("MANIFEST-*"))
    os.truncate(newest, newest.stat().st_size // 2)


def delete_current(folder: Path) -> None:
    (folder / "CURRENT").unlink()


async def fill(client: Client, into: str, letter: str) -> list[str]:
    ids = some(letter, 2 * KEPT)
    await client.send(into, ids, "q")
    await client.until_ready("q", *ids[KEPT:])
    return ids[KEPT:]


async def test_a_damaged_database_is_set_aside_and_rebuilt(app: Application) -> None:
    worker = app.new_worker()
    async with client_of(app) as client:
        held = await fill(client, app.inputs[0], "a")
        damages = (delete_a_table, shorten_the_manifest, delete_current)
        for number, damage in enumerate(damages, 1):
            worker.stop()
            worker.start()  # RocksDB writes its log to a table when it is opened again
            await client.until_ready("q", *held)
            worker.kill()
            damage(partition_folder(worker))
            worker.start()
            await client.until_ready("q", *held)
            text = "was set aside as partition-0.set-aside-"
            assert worker.log_text().count(text) == number, damage
            held = await fill(client, app.inputs[0], "bcd"[number - 1])
        assert "Traceback" not in worker.log_text()
        await all_came_once(app, client, "q")


async def test_a_second_worker_on_the_same_data_directory_is_refused_at_once(
    app: Application,
) -> None:
    first = app.new_worker()
    await until(lambda: "assigned:" in first.log_text(), 60, "the first worker runs")
    again = ("worker", "--config", app.config_dir, "--data-dir", first.data_dir)
    refused = await asyncio.to_thread(app.run, *again)
    assert refused.returncode == 2
    assert f"in use by another worker, with the process id {first._process.pid}" in refused.stderr  # type: ignore[union-attr]  # noqa: SLF001
    assert first.alive
    first.kill()
    first.start()
    await until(lambda: first.log_text().count("assigned:") == 2, 60, "it runs again")
