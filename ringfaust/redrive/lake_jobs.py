"""What `ringfaust spark redrive` has sent before it shared the memory of the other redrives.

For each of its jobs it kept a position in each partition of the dead or evicted topic, as an offset
of a consumer group. A job has sent what matches its condition up to there. Only Spark can tell what
that was: when the job runs again, it adds that to the shared memory, and marks its group.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import lake_redrive_group
from ringfaust.kafka.offsets import group_offsets, groups_named
from ringfaust.redrive.memory import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierLakeJob:
    """A job whose progress is not in the shared memory."""

    name: str
    group: str
    fingerprint: str
    """Of its condition and its target."""
    about: str
    """The same for people."""
    positions: Mapping[TopicPartition, int]
    """What precedes these offsets was sent, if it matches the condition."""
    is_shared: bool
    """Whether the shared memory has what it sent."""

    def may_have_sent(self, origin: Origin) -> bool:
        """Whether the job has come past this record, and the shared memory does not know."""
        tp = TopicPartition(origin.topic, origin.partition)
        return not self.is_shared and origin.offset < self.positions.get(tp, 0)

    def shared(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that say that the shared memory has what it sent. Old versions read them."""
        note = {"fingerprint": self.fingerprint, "about": self.about, "shared": True}
        return {tp: OffsetAndMetadata(at, json.dumps(note)) for tp, at in self.positions.items()}


class MaybeSent(RingfaustError):
    """An earlier version may have sent some of these messages; nothing was sent now."""

    def __init__(self, job: EarlierLakeJob, count: int) -> None:
        super().__init__(
            f"{count:,} of these messages may have been sent by job {job.name!r} of `ringfaust "
            f"spark redrive` ({job.about}), which ran in an earlier version: run that job once "
            "more, so that every redrive knows what it sent, or send them all the same with --again"
        )


def refuse_maybe_sent(jobs: Iterable[EarlierLakeJob], origins: Collection[Origin]) -> None:
    """Refuse messages of which nobody knows whether they were sent.

    Raises:
        MaybeSent: a job may have sent some of them.
    """
    for job in jobs:
        if count := sum(map(job.may_have_sent, origins)):
            raise MaybeSent(job, count)


async def earlier_jobs(
    client: Mapping[str, Any], application: str, topic: str, partitions: Iterable[int]
) -> list[EarlierLakeJob]:
    """The jobs of earlier versions that have sent records of this dead or evicted topic.

    Raises:
        KafkaError: the brokers do not answer.
    """
    prefix = lake_redrive_group(application, "")
    places = [(topic, partition) for partition in partitions]
    jobs = []
    for group in await groups_named(client, prefix):
        found = await group_offsets(client, group, places)
        notes = [_note(committed.metadata) for committed in found.values()]
        if notes and all(notes):
            jobs.append(
                EarlierLakeJob(
                    name=group.removeprefix(prefix),
                    group=group,
                    fingerprint=notes[0]["fingerprint"],
                    about=notes[0]["about"],
                    positions={TopicPartition(*tp): each.offset for tp, each in found.items()},
                    is_shared=all("shared" in note for note in notes),
                )
            )
    return jobs


def _note(metadata: str) -> dict[str, Any]:
    """What a job commits with its offsets; empty if something else has committed them."""
    try:
        note = json.loads(metadata)
        return note if {"fingerprint", "about"} <= note.keys() else {}
    except (ValueError, AttributeError):
        return {}
