"""Workers with different settings do not share the queues of an application (R113)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from tests.chaos.harness import Application, Worker, environment, until

pytestmark = pytest.mark.kafka

QUEUES = {"q": {"ring_size": 3}}
UNCHECKED = """
import sys
from pathlib import Path
from ringfaust.config import load
from ringfaust.worker import app
async def check_group(*_): pass
app.check_group = check_group
app.run(*load(Path(sys.argv[1]), data_dir=Path(sys.argv[2])))
"""
"""A worker that does not ask first, as if both had asked before the other one had joined."""


def changed(app: Application, ring_size: int) -> None:
    routes = [route.model_dump() for route in app.queues_config.routes]
    queues: dict[str, Any] = {"routes": routes, "queues": {"q": {"ring_size": ring_size}}}
    app.write("queues.yaml", queues)


async def running(app: Application) -> Worker:
    worker = app.new_worker()
    await until(lambda: "assigned:" in worker.log_text(), 60, "it runs")
    return worker


async def test_a_worker_with_other_settings_is_refused(app: Application) -> None:
    worker = await running(app)
    changed(app, 4)
    again = ("worker", "--config", app.config_dir, "--data-dir", app.folder / "other")
    refused = await asyncio.to_thread(app.run, *again)
    assert refused.returncode == 2
    assert "the brokers name" not in refused.stderr
    assert f"group {app.worker_config.application} have other settings" in refused.stderr
    assert "127.0.0.1" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert worker.alive
    # Stopped and started with the new file, it is admitted: its old settings have left the group.
    assert await asyncio.to_thread(worker.stop) == 0
    worker.start()
    await until(lambda: worker.log_text().count("assigned:") == 2, 60, "it runs again")


@pytest.mark.slow  # once too slow beside another test process
async def test_the_broker_refuses_one_of_two_that_start_at_once(app: Application) -> None:
    worker = await running(app)
    changed(app, 4)
    command = [sys.executable, "-c", UNCHECKED, str(app.config_dir), str(app.folder / "other")]
    second = await asyncio.to_thread(
        subprocess.run, command, check=False, capture_output=True, text=True, env=environment(),
        timeout=60,
    )  # fmt: skip
    assert second.returncode != 0
    assert "a worker with other settings has joined" in second.stderr
    assert "Traceback" not in second.stderr
    assert worker.alive
