"""A ring job whose routes change: Spark ties its checkpoint to the topics that it has read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfaust.config import QueuesConfig, WorkerConfig, load
from ringfaust.config.topics import create_topics
from ringfaust.kafka.admin import connected_admin
from ringfaust.kafka.offsets import CommittedOffset, changelog_metadata, repartition_metadata
from ringfaust.protocol.records import Role
from ringfaust.spark.ring import move
from ringfaust.spark.topic_ids import current_ids
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.ring_harness import RINGS, RingHarness, lines, until
from tests.spark.shared_session import run, run_command

PIECE = 10
"""Records for each ring at a time."""
TOO = "{topic: begun.too, queue: 'r.{key}', hop: auto}, "
"""The first of the two routes of `begun`."""


def added(harness: RingHarness) -> int:
    events = [line["event"] for _, line in lines(harness.read(Role.EVENTS))]
    return events.count("added")


@pytest.fixture(scope="module")
def begun(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> RingHarness:
    """A job that has read two topics."""
    folder = tmp_path_factory.mktemp("begun")
    harness = RingHarness(folder, broker.bootstrap_servers, "begun")
    config = folder / "queues.yaml"
    config.write_text(config.read_text().replace("routes: [", f"routes: [{TOO}"))
    asyncio.run(create_topics(*load(folder)))
    harness.send(0, PIECE)
    run(spark, *harness.arguments("--once"))
    assert added(harness) == PIECE * RINGS
    return harness


@pytest.mark.kafka
def test_a_job_whose_route_is_repartitioned_from_now_on_says_so(
    spark: SparkSession, begun: RingHarness
) -> None:
    config = begun.folder / "queues.yaml"
    text = config.read_text()
    config.write_text(text.replace("hop: auto", "hop: always"))
    refused = run_command(spark, *begun.arguments("--once"))
    assert refused.exit_code == 2
    shown = " ".join(refused.stderr.split())
    assert "has read begun.sent, begun.too, whose hop was changed" in shown
    assert "Start a worker in between, which says whether queues would move" in shown

    # Or its first repartitioned route is a new one.
    more = text.replace("routes: [", "routes: [{topic: begun.new, queue: other, hop: always}, ")
    config.write_text(more.replace("queues: {", "queues: {other: {}, "))
    asyncio.run(create_topics(*load(begun.folder)))
    refused = run_command(spark, *begun.arguments("--once"))
    assert refused.exit_code == 2
    shown = " ".join(refused.stderr.split())
    assert "has read no topic that is repartitioned, as begun.new is" in shown
    config.write_text(text)


@pytest.mark.kafka
def test_without_a_route_that_it_has_read_a_job_says_how_to_go_on(
    spark: SparkSession, begun: RingHarness
) -> None:
    """The last test of `begun`, whose rings move."""
    config = begun.folder / "queues.yaml"
    config.write_text(config.read_text().replace(TOO, ""))
    refused = run_command(spark, *begun.arguments("--once"))
    assert refused.exit_code == 2
    checkpoint, new = str(begun.folder / "checkpoint"), str(begun.folder / "new")
    shown = " ".join(refused.stderr.split())
    assert f"{checkpoint} has read begun.too, which no route names any more" in shown
    remedy = (
        f"ringfaust spark move-to-worker --checkpoint {checkpoint}",
        "ringfaust spark ring --from-worker --checkpoint NEW",
    )
    assert all(each in shown for each in remedy)

    # What it says can be carried out.
    begun.send(PIECE, PIECE)
    begun.command("r.1", type="list", reply="asked", limit=1000)
    folders = ["--config", str(begun.folder), "--checkpoint"]
    for command in (
        ["move-to-worker", *folders, checkpoint],
        ["ring", "--from-worker", *folders, new, "--once"],
    ):
        done = run_command(spark, "spark", *command)
        assert done.exit_code == 0, done.output
    assert added(begun) == 2 * PIECE * RINGS
    (answer,) = [json.loads(each.value)["answer"] for each in begun.read(Role.REPLIES)]
    assert len(answer["ready"]) == 2 * PIECE


def recreate(harness: RingHarness) -> tuple[str, str]:
    """Delete the producers' topic and create it again; its ids."""
    topic = f"{harness.application}.sent"

    async def delete() -> None:
        async with connected_admin({"bootstrap_servers": harness.servers}) as admin:
            await admin.delete_topics([topic])

    def topic_id() -> str:
        return asyncio.run(current_ids(harness.config, [topic])).get(topic, "")

    before = topic_id()
    asyncio.run(delete())
    until(lambda: not topic_id())
    asyncio.run(create_topics(*load(harness.folder)))
    until(lambda: bool(topic_id()))
    return before, topic_id()


@pytest.mark.kafka
def test_a_topic_that_was_created_again_is_refused(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """It has more records than were read before: Spark would skip the first ones in silence."""
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "again")
    harness.send(0, 2)
    run(spark, *harness.arguments("--once"))
    assert added(harness) == 2 * RINGS
    before, now = recreate(harness)
    harness.send(2, 5)
    refused = run_command(spark, *harness.arguments("--once"))
    assert refused.exit_code == 2
    shown = " ".join(refused.stderr.split())
    assert f"topic again.sent was deleted and created again: the job of {tmp_path}" in shown
    assert f"id {before}, and now it has the id {now}." in shown
    assert added(harness) == 2 * RINGS

    # What it says can be carried out.
    folders = ["--config", str(tmp_path), "--checkpoint", str(tmp_path / "checkpoint")]
    run(spark, "spark", "move-to-worker", *folders)
    with harness.worker() as worker:
        until(lambda: added(harness) == 7 * RINGS, worker)
    gaps = [line for _, line in lines(harness.read(Role.EVENTS)) if line["event"] == "gap"]
    assert {gap["cause"] for gap in gaps} == {"recreated"}


def test_a_topic_that_was_read_directly_before_is_not_read_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker was killed before the group's offset had followed the state."""
    offsets = {
        ("in", 0): CommittedOffset(5, changelog_metadata("id")),
        ("in", 1): CommittedOffset(5, repartition_metadata("")),
    }

    async def committed(*_: object) -> dict[tuple[str, int], CommittedOffset]:
        return offsets

    async def no_records(*_: object) -> dict[str, dict[int, int]]:
        return {}

    async def ends(*_: object) -> dict[tuple[str, int], int]:
        return {("in", 0): 9, ("in", 1): 9}

    monkeypatch.setattr(move, "group_offsets", committed)
    monkeypatch.setattr(move, "record_ends", no_records)
    monkeypatch.setattr(move, "_refuse_recreated", no_records)
    monkeypatch.setattr(move, "log_ends", ends)
    route = {"topic": "in", "queue": "q", "hop": "always"}
    queues = QueuesConfig.model_validate({"routes": [route], "queues": {"q": {}}})
    positions = {0: {"in": 9}, 1: {"in": 9}}
    found = asyncio.run(move._repartitioned_offsets(WorkerConfig(), queues, positions))
    assert found == {"in": {"0": 9, "1": 5}}
