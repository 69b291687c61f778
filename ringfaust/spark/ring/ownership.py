"""Who has the rings: this checkpoint's job, another one's, or the workers (ADR 53)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from ringfaust.config import WorkerConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.changelog_owner import ChangelogEnd, changelog_ends, write_owners
from ringfaust.protocol.records import Role
from ringfaust.protocol.stored_rows import JobOwner
from ringfaust.times import time_text, wall_ms


class OtherOwner(RingfaustError):
    """Someone else has the application's rings, whom the text names. Nothing was changed."""


async def rings_owners(worker: WorkerConfig) -> list[ChangelogEnd]:
    """By partition, who has the rings, according to the changelog."""
    return await changelog_ends(
        worker.client_options(), worker.topic(Role.CHANGELOG), worker.partitions
    )


def other_job(ends: Sequence[ChangelogEnd], query: str) -> JobOwner | None:
    """A job other than that of this checkpoint which has rings."""
    return next((end.job for end in ends if end.job and end.job.query != query), None)


def has_all(ends: Sequence[ChangelogEnd], query: str) -> bool:
    """Whether the job of this checkpoint has all rings."""
    return all(end.job and end.job.query == query for end in ends)


def began_from_worker(ends: Sequence[ChangelogEnd], query: str) -> bool:
    """Whether the job of this checkpoint has taken rings over to begin with what they hold."""
    return any(end.job and end.job.query == query and end.job.from_worker for end in ends)


def refuse_other_owner(
    ends: Sequence[ChangelogEnd],
    application: str,
    query: str,
    *,
    from_worker: bool,
    has_begun: bool,
    wrote_last: bool,
) -> None:
    """Raise OtherOwner if the job of a checkpoint may not have the rings.

    `ends` are their owners now. The job may be to begin with all that workers' rings hold
    (`from_worker`), or has planned a micro-batch before (`has_begun`). A job of an earlier version
    has left nothing in the changelog, and is known by being the last one that wrote outputs
    (`wrote_last`).
    """
    if other := other_job(ends, query):
        raise OtherOwner(
            f"the rings of {application} belong to a ring job with the checkpoint "
            f"{other.checkpoint}, since {time_text(other.since_ms)}. Go on with that one; or stop "
            "it, and begin with empty rings in a new folder with --take-over"
        )
    has_some = any(end.job for end in ends)
    has_workers = any(end.has_rows for end in ends)
    if has_some and has_workers and has_begun and not wrote_last:
        raise OtherOwner(
            f"some of the rings of {application} were moved to its workers, which may have gone on "
            "with them: stop the workers, and repeat `ringfaust spark move-to-worker` with this "
            "checkpoint, which moves the others"
        )
    if has_some or from_worker or wrote_last:
        return
    if has_workers:
        raise OtherOwner(
            f"the rings of {application} belong to its workers. Stop them all, and start with "
            "--from-worker and a new checkpoint to begin with everything that the rings hold; "
            "--take-over would begin with empty rings"
        )


def take_rings(worker: WorkerConfig, checkpoint: str, query: str, *, from_worker: bool) -> None:
    """Let the job of a checkpoint have all rings, and shut out workers that still have some.

    Raises:
        OtherOwner: someone else takes them at the same moment.
    """
    owner = JobOwner(checkpoint, query, wall_ms(), from_worker)
    asyncio.run(_write(worker, owner))
    if not has_all(asyncio.run(rings_owners(worker)), query):
        raise OtherOwner(
            f"someone else is taking the rings of {worker.application} over: make sure that only "
            "one job or worker starts, and start it again"
        )


def release_rings(worker: WorkerConfig, partitions: Collection[int] | None = None) -> None:
    """Let workers have the rings of these partitions, or of all."""
    asyncio.run(_write(worker, None, partitions))


async def _write(
    worker: WorkerConfig, owner: JobOwner | None, partitions: Collection[int] | None = None
) -> None:
    await write_owners(
        worker.client_options(),
        worker.application,
        worker.topic(Role.CHANGELOG),
        range(worker.partitions) if partitions is None else partitions,
        owner,
    )
