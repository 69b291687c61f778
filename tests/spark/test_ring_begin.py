"""A job whose first micro-batch did not come to its end begins again with the same rings."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from ringfaust.protocol.records import Role
from ringfaust.spark.files import last_committed, last_planned
from ringfaust.spark.options import RingOptions
from ringfaust.spark.ring import checkpoint as checkpoints
from ringfaust.spark.ring import job
from ringfaust.spark.ring.command import _take_rings
from ringfaust.spark.ring.move import CannotMove
from ringfaust.spark.ring.ownership import rings_owners, take_rings
from ringfaust.spark.ring.writer import OtherCheckpoint, OutputTarget, claim_outputs
from ringfaust.testing.broker import EmbeddedBroker
from tests.spark.ring_harness import RING_SIZE, RINGS, RingHarness, check_events, lines
from tests.spark.shared_session import run, run_command
from tests.spark.test_ring_move import answers, ask, until_added, until_attached
from tests.spark.test_ring_writer import part, write

SENT = RING_SIZE + 2
OTHER_TASK_S = 3


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """One task writes its outputs, and fails before Spark commits its state, after the other's."""

    class Failing(job.RingOperator):
        def close(self) -> None:
            has_written = self._writer is not None
            super().close()
            if has_written and TaskContext.get().partitionId() == 0:
                time.sleep(OTHER_TASK_S)
                raise RuntimeError("the executor is lost")

    with monkeypatch.context() as patch:
        patch.setattr(job, "RingOperator", Failing)
        yield patch


@pytest.mark.kafka
def test_a_first_micro_batch_that_failed_begins_with_the_workers_rings_again(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, failing: pytest.MonkeyPatch
) -> None:
    """Spark gives a repeated batch 0 no initial state unless it is passed again: all was lost."""
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "begins")
    with harness.worker() as worker:
        harness.attach()
        until_attached(harness, worker)
        harness.send(0, SENT)
        until_added(harness, worker, SENT)
        ask(harness, "by-worker")
        by_worker = answers(harness, "by-worker")

    harness.send(SENT, 1)
    checkpoint = str(tmp_path / "checkpoint")
    before = harness.count(Role.EVENTS)
    for more in (["--from-worker"], [], ["--from-worker"]):
        failed = run_command(spark, *harness.arguments("--once", *more))
        assert "Spark ended the job" in failed.stderr, more
        assert harness.count(Role.EVENTS) > before
        assert (last_planned(spark, checkpoint), last_committed(spark, checkpoint)) == (0, -1)
    refused = run_command(spark, *harness.arguments("--once", "--take-over"))
    assert "already begun: omit --take-over" in refused.stderr
    folders = ["--config", str(tmp_path), "--checkpoint", checkpoint]
    refused = run_command(spark, "spark", "move-to-worker", *folders)
    assert "run `ringfaust spark ring --once` with this checkpoint" in refused.stderr

    failing.undo()
    run(spark, *harness.arguments("--once"))
    ask(harness, "by-job")
    run(spark, *harness.arguments("--once"))
    by_job = answers(harness, "by-job")
    for ring, answer in by_worker.items():
        assert by_job[ring]["delivering"] == answer["delivering"]
        *kept, _ = by_job[ring]["ready"]
        assert kept == answer["ready"][-len(kept) :]
    check_events(harness.read(Role.EVENTS), SENT + 1)
    refused = run_command(spark, *harness.arguments("--once", "--from-worker"))
    assert "already begun: omit --from-worker" in refused.stderr


@pytest.mark.kafka
def test_a_job_begins_with_the_workers_rings_until_it_has_committed_or_is_told_otherwise(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Its last start before the first micro-batch counts, and is in the changelog."""
    worker = RingHarness(tmp_path, broker.bootstrap_servers, "told").config
    target = OutputTarget(worker=worker, query="mine", tasks=2, inputs=frozenset())

    def take(*options: str, has_begun: bool = False, has_state: bool = False) -> bool:
        given = RingOptions("/data/rings")._replace(**dict.fromkeys(options, True))
        return _take_rings(worker, given, target, has_begun=has_begun, has_state=has_state)

    assert not take()
    assert take("from_worker")
    assert take(has_begun=True) and take("from_worker", has_begun=True)
    assert take()
    assert not take("take_over")
    assert not take(has_begun=True), "it has said that it begins with empty rings"
    assert take("from_worker")
    assert not take(has_begun=True, has_state=True)
    with pytest.raises(CannotMove, match="already begun: omit --from-worker"):
        take("from_worker", has_begun=True, has_state=True)


@pytest.mark.kafka
def test_offsets_of_a_start_that_planned_no_micro_batch_do_not_count(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Spark prefers them to `startingOffsets`, which say how far workers have come since."""
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "unplanned", "always")
    harness.send(0, 2)
    control, sent = harness.config.topic(Role.CONTROL), f"{harness.application}.sent"
    for source, (topic, at) in enumerate({control: 0, sent: 1}.items()):
        path = tmp_path / "checkpoint" / "sources" / str(source) / "0"
        path.parent.mkdir(parents=True)
        path.write_text("\0v1\n" + json.dumps({topic: {str(n): at for n in range(4)}}))
    run(spark, *harness.arguments("--once"))
    added = [line for _, line in lines(harness.read(Role.EVENTS)) if line["event"] == "added"]
    assert len(added) == 2 * RINGS


@pytest.mark.kafka
def test_a_job_that_has_not_begun_is_shut_out_before_its_rings_are_released(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """It may be paused, and go on when workers have the rings."""
    harness = RingHarness(tmp_path, broker.bootstrap_servers, "unbegun")
    worker, checkpoint = harness.config, str(tmp_path / "checkpoint")
    wanted = checkpoints.CheckpointIdentity(application="unbegun", partitions=4, tasks=2)
    query = checkpoints.claim_checkpoint(spark, checkpoint, wanted).query
    target = OutputTarget(worker=worker, query=query, tasks=2, inputs=frozenset())
    asyncio.run(claim_outputs(target, has_begun=False))
    take_rings(worker, checkpoint, query, from_worker=True)

    folders = ["--config", str(tmp_path), "--checkpoint", checkpoint]
    run(spark, "spark", "move-to-worker", *folders)
    assert not any(end.job for end in asyncio.run(rings_owners(worker)))
    with pytest.raises(OtherCheckpoint):
        write(target, part(0, 0))
