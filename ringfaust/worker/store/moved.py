"""Refuses state that was mirrored from another cluster, before anything of it is used (R111)."""

from __future__ import annotations

from ringfaust.config import WorkerConfig
from ringfaust.config.queues import QueuesConfig
from ringfaust.errors import RingfaustError
from ringfaust.kafka.mirrored_state import moved_states
from ringfaust.kafka.names import worker_group
from ringfaust.kafka.offsets import group_offsets
from ringfaust.kafka.topic_ids import topic_ids
from ringfaust.protocol.records import Role


class MovedState(RingfaustError):
    """The state was written in another cluster. Nothing was changed.

    What to do: `ringfaust restore` writes where its partitions begin here.
    """


async def refuse_moved_state(worker: WorkerConfig, queues: QueuesConfig) -> None:
    """Refuse a changelog whose positions are those of another cluster (ADR 57).

    The group's offsets name the changelog that they belong to. Only if none does, because the
    application is new, was moved, or has lost its offsets, the changelog itself is read.

    Args:
        worker: worker.yaml.
        queues: what is in effect.

    Raises:
        MovedState: it is.
        KafkaError: the brokers failed.
    """
    client, changelog = worker.client_options(), worker.topic(Role.CHANGELOG)
    changelog_id = (await topic_ids(client, [changelog])).topics.get(changelog, "")
    direct = [route.topic for route in queues.split_routes(worker.partitions)[0]]
    topics = (worker.topic(Role.CONTROL), worker.topic(Role.HOP), *direct)
    numbers = range(worker.partitions)
    wanted = [(topic, number) for topic in topics for number in numbers]
    offsets = await group_offsets(client, worker_group(worker.application), wanted)
    found = [each for each in offsets.values() if not each.is_repartitioned]
    if any(each.changelog_id in ("", changelog_id) for each in found):
        return
    states = await moved_states(client, changelog, numbers)
    if states.moved:
        read = ", ".join(sorted(states.topics))
        raise MovedState(
            f"the state in {changelog} was written in another cluster, or all topics that it has "
            f"read were created again: {read}. Their offsets are others here. "
            "From the beginning, old commands would be carried out again. Nothing was changed. "
            "`ringfaust restore` shows where the partitions would begin, and writes it with --yes: "
            "see docs/how-to/move-to-another-cluster.md"
        )
