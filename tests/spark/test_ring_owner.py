"""An application's rings have one owner: its workers, or the job of one checkpoint (ADR 53)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError
from pyspark.sql import SparkSession
from typer.testing import Result

from ringfaust.kafka import changelog_owner
from ringfaust.kafka.changelog_owner import ChangelogEnd
from ringfaust.kafka.names import partition_transactional_id
from ringfaust.kafka.transactions import TransactionalProducer
from ringfaust.protocol.records import Role
from ringfaust.protocol.stored_rows import JobOwner
from ringfaust.spark.ring.ownership import (
    OtherOwner,
    began_from_worker,
    refuse_other_owner,
    release_rings,
    rings_owners,
    take_rings,
)
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import WorkerProcess
from tests.spark.ring_harness import RingHarness, until
from tests.spark.shared_session import run, run_command

JOB = JobOwner("/data/rings", "mine", 1_764_000_000_000, from_worker=False)
NOBODY, WORKERS = ChangelogEnd(None, has_rows=False), ChangelogEnd(None, has_rows=True)
MINE = ChangelogEnd(JOB, has_rows=False)
OTHERS = ChangelogEnd(JOB._replace(query="other"), has_rows=False)


def refuse(*ends: ChangelogEnd, **given: bool) -> None:
    known = {"from_worker": False, "has_begun": False, "wrote_last": False} | given
    refuse_other_owner(ends, "app", "mine", **known)


def test_who_may_have_the_rings() -> None:
    refuse(NOBODY, NOBODY)
    refuse(MINE, NOBODY)
    refuse(MINE, WORKERS)  # it was killed while it took them over
    refuse(MINE, WORKERS, has_begun=True, wrote_last=True)  # the same, of an earlier version
    refuse(WORKERS, NOBODY, from_worker=True)
    refuse(WORKERS, wrote_last=True)  # a job of an earlier version


@pytest.mark.parametrize("given", [{}, {"from_worker": True}, {"wrote_last": True}])
def test_the_rings_of_another_job_are_refused(given: dict[str, bool]) -> None:
    with pytest.raises(OtherOwner, match=r"checkpoint /data/rings, since 2025-11-24 16:00:00\."):
        refuse(NOBODY, OTHERS, **given)


def test_the_rings_of_workers_are_refused() -> None:
    with pytest.raises(OtherOwner, match=r"the rings of app belong to its workers\. Stop them all"):
        refuse(NOBODY, WORKERS)


def test_rings_that_were_moved_to_workers_in_part_are_refused() -> None:
    """The move was interrupted, and workers may have gone on with those: the job's are older."""
    with pytest.raises(OtherOwner, match="repeat `ringfaust spark move-to-worker`"):
        refuse(MINE, WORKERS, has_begun=True)


def test_a_job_that_took_rings_over_begins_with_them() -> None:
    """Also if it was killed while it took them over."""
    from_worker = ChangelogEnd(JOB._replace(from_worker=True), has_rows=False)
    assert began_from_worker([from_worker, WORKERS], "mine")
    assert not began_from_worker([from_worker], "other")
    assert not began_from_worker([MINE, NOBODY], "mine")


def log_of(harness: RingHarness) -> str:
    return (harness.folder / "worker.log").read_text()


def until_it_ends(harness: RingHarness, worker: WorkerProcess) -> None:
    """The worker stops by itself, because a job has the rings, and says which."""
    until(lambda: "belong to a ring job on Spark with the checkpoint" in log_of(harness))
    process = worker._process
    assert process is not None
    assert process.wait(60) != 0


@pytest.mark.kafka
def test_a_running_worker_and_a_job_exclude_each_other(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "owned")
    with harness.worker() as worker:
        harness.send(0, 60)
        until(lambda: harness.count(Role.EVICTED) > 0, worker)
        for _ in range(2):
            refused = run_command(spark, *harness.arguments("--once"))
            assert refused.exit_code == 2
            assert "owned still has running workers (1): stop them all first" in refused.stderr

        # A worker that is paused leaves its group, and goes on later. It is shut out.
        take_rings(harness.config, "/data/rings", "a job", from_worker=True)
        harness.send(60, 60)
        until_it_ends(harness, worker)
    assert "checkpoint /data/rings, since 20" in log_of(harness)
    assert all(end.job for end in asyncio.run(rings_owners(harness.config)))
    release_rings(harness.config)


@pytest.mark.slow
@pytest.mark.kafka
def test_a_jobs_rings_are_refused_to_others_until_it_hands_them_over(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "held")
    checkpoint, other = str(tmp_path / "checkpoint"), str(tmp_path / "other")
    harness.send(0, 2)
    run(spark, *harness.arguments("--once"))

    def second(*more: str) -> Result:
        folders = ["--config", str(tmp_path), "--checkpoint", other]
        return run_command(spark, "spark", "ring", *folders, "--once", *more)

    for more in ([], ["--from-worker"]):
        refused = second(*more)
        assert refused.exit_code == 2
        assert f"belong to a ring job with the checkpoint {checkpoint}, since" in refused.stderr
    with harness.worker() as worker:
        until_it_ends(harness, worker)
    assert f"move-to-worker --checkpoint {checkpoint}" in log_of(harness)

    move = ["spark", "move-to-worker", "--config", str(tmp_path), "--checkpoint", checkpoint]
    run(spark, *move)
    assert not any(end.job for end in asyncio.run(rings_owners(harness.config)))
    (tmp_path / "worker.log").write_text("")
    with harness.worker() as worker:
        before = harness.count(Role.EVENTS)
        harness.send(2, 1)
        until(lambda: harness.count(Role.EVENTS) > before, worker)
    back = run_command(spark, *harness.arguments("--once"))
    assert (back.exit_code, "belong to its workers" in back.stderr) == (2, True)
    again = run_command(spark, *move)
    assert (again.exit_code, "moving them would lose" in again.stderr) == (2, True)
    taken = second("--take-over")
    assert taken.exit_code == 0, taken.output
    owners = [end.job for end in asyncio.run(rings_owners(harness.config))]
    assert {owner.checkpoint for owner in owners if owner} == {other} and all(owners)


@pytest.mark.kafka
def test_the_changelog_says_who_has_each_partition(broker: EmbeddedBroker, tmp_path: Path) -> None:
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "says")
    worker = harness.config
    assert asyncio.run(rings_owners(worker)) == [NOBODY] * 4
    take_rings(worker, "/data/rings", "mine", from_worker=False)
    ends = asyncio.run(rings_owners(worker))
    assert {end.job.query for end in ends if end.job} == {"mine"}
    release_rings(worker, [1, 2])
    assert [bool(end.job) for end in asyncio.run(rings_owners(worker))] == [1, 0, 0, 1]


@pytest.mark.kafka
def test_what_readers_do_not_see_yet_is_not_taken_for_another_job(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of others hides it here; on a busy broker, its own markers come late."""
    monkeypatch.setattr(changelog_owner, "_SEEN_S", 0.1)
    worker = RingHarness(tmp_path, broker.bootstrap_servers, "delayed").config

    async def take() -> None:
        async with AIOKafkaProducer(**worker.client_options(), transactional_id="other") as other:
            await other.begin_transaction()
            await other.send_and_wait(worker.topic(Role.CHANGELOG), b"{}", b"k", 0)
            with pytest.raises(KafkaTimeoutError, match="partition=0"):
                await asyncio.to_thread(
                    take_rings, worker, "/data/rings", "mine", from_worker=False
                )
            await other.abort_transaction()

    asyncio.run(take())
    take_rings(worker, "/data/rings", "mine", from_worker=False)


@pytest.mark.kafka
def test_rings_that_a_job_has_given_back_belong_to_the_workers(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Else a job would begin with empty rings, although nobody asked for that (ADR 53)."""
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "back")
    worker = harness.config
    name = partition_transactional_id(worker.application, 1)
    topics: dict[str, str] = {Role.CHANGELOG: worker.topic(Role.CHANGELOG)}

    async def write_a_row() -> None:
        options = worker.client_options()
        producer = TransactionalProducer(worker.application, 1, topics, options, name)
        await producer.start()
        await producer.commit({}, [(b"row", b"x")], {})
        await producer.stop()

    asyncio.run(write_a_row())
    assert [end.has_rows for end in asyncio.run(rings_owners(worker))] == [0, 1, 0, 0]
    take_rings(worker, "/data/rings", "mine", from_worker=True)
    release_rings(worker)
    assert [end.has_rows for end in asyncio.run(rings_owners(worker))] == [0, 1, 0, 0]
