"""The topics of an application: what each must be, and what is wrong with those that are there.

What a topic is for stands in `topics/*.yaml`. Here the declarations become the topics that one
application needs, and are compared with what the brokers have. Nothing is altered or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.documents import ConfigModel, read, refuse, shipped
from ringfaust.errors import RingfaustError
from ringfaust.kafka.admin import Admin, ExistingTopic, NewTopic, open_admin
from ringfaust.protocol.records import Role

_PRODUCER_NAME = "{topic}"
_TIMESTAMPS = {"append": "LogAppendTime", "create": "CreateTime"}

_Ms = Annotated[int, Field(ge=1)]


class TopicDeclaration(ConfigModel):
    """One file of `topics/`: what a topic of this role is."""

    role: Annotated[Role, Field(strict=False)]
    name: str
    """Template of the name: `{application}` or, for producers' topics, `{topic}`."""
    partitions: Literal["application", "any"]
    cleanup: Literal["delete", "compact"]
    retention_ms: _Ms | None = None
    """How long records stay; none: what the brokers are set to."""
    segment_bytes: Annotated[int, Field(ge=1 << 20)] | None = None
    tombstone_retention_ms: _Ms | None = None
    """How long a compacted topic still tells that a row was removed."""
    timestamps: Literal["append", "create"]
    max_message_bytes: Annotated[int, Field(ge=1)] | None = None
    key: str
    value: str
    headers: str
    written_by: str
    read_by: str
    why: str

    @model_validator(mode="after")
    def _named_by_its_role(self) -> Self:
        producer = self.role is Role.PRODUCER
        right = _PRODUCER_NAME if producer else f"{{application}}.{self.role}"
        if self.name != right:
            raise refuse(f"must be {right!r}, which is how workers name it", "name")
        return self

    def kafka_settings(self) -> dict[str, str]:
        """What Kafka is told when such a topic is made."""
        given = {
            "cleanup.policy": self.cleanup,
            "message.timestamp.type": _TIMESTAMPS[self.timestamps],
            "retention.ms": self.retention_ms,
            "segment.bytes": self.segment_bytes,
            "delete.retention.ms": self.tombstone_retention_ms,
            "max.message.bytes": self.max_message_bytes,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


class WantedTopic(NamedTuple):
    """One topic that the application needs."""

    name: str
    declaration: TopicDeclaration
    partitions: int
    """What it is made with."""
    exact: bool
    """Must it have just so many partitions?"""


What = Literal["missing", "partitions", "cleanup", "timestamps", "max_message_bytes", "tombstones"]


class TopicProblem(NamedTuple):
    """One thing that is wrong with a topic."""

    topic: str
    role: Role
    what: What
    severity: Literal["error", "warning"]
    text: str
    """One sentence or two: what is wrong, what follows from it, what to do."""

    def __str__(self) -> str:
        return self.text


class WrongTopics(RingfaustError):
    """The topics are not as the rings need them.

    What to do: `ringfaust topics create` makes what is missing; the text explains the rest.
    """

    def __init__(self, problems: Sequence[TopicProblem]) -> None:
        text = "\n".join(f"- {problem.text}" for problem in problems)
        super().__init__(f"the worker cannot start with these topics:\n{text}")


class TopicFinding(NamedTuple):
    """A wanted topic, beside what is there of it."""

    wanted: WantedTopic
    existing: ExistingTopic | None
    problems: tuple[TopicProblem, ...]


@cache
def declarations() -> dict[Role, TopicDeclaration]:
    """The shipped declarations.

    Raises:
        ConfigError: a file is missing or wrong.
    """
    folder = shipped("topics")
    return {role: read(folder / f"{role}.yaml").model(TopicDeclaration) for role in Role}


def wanted_topics(config: WorkerConfig, queues: QueuesConfig) -> list[WantedTopic]:
    """All topics of the application: its own, then those its routes read."""
    known = declarations()
    own = [
        WantedTopic(config.topic(role), known[role], config.partitions, exact=True)
        for role in Role
        if role is not Role.PRODUCER
    ]
    read_ones = [
        WantedTopic(
            route.topic,
            known[Role.PRODUCER],
            config.partitions,
            exact=not route.needs_hop(config.partitions),
        )
        for route in queues.routes
    ]
    return own + read_ones


async def compare_topics(config: WorkerConfig, queues: QueuesConfig) -> list[TopicFinding]:
    """Compare the topics that are needed with those that are there.

    Raises:
        BrokerUnreachable: no broker answers, or what answers is none.
        BrokerRefused: one does, but does not tell.
    """
    async with open_admin(config.brokers()) as admin:
        return await _compare(admin, wanted_topics(config, queues))


async def check_topics(config: WorkerConfig, queues: QueuesConfig) -> list[TopicProblem]:
    """What is wrong with the topics; empty: nothing. Only errors forbid a worker to start.

    Raises:
        BrokerUnreachable: no broker answers, or what answers is none.
        BrokerRefused: one does, but does not tell.
    """
    return [
        problem for finding in await compare_topics(config, queues) for problem in finding.problems
    ]


async def create_topics(config: WorkerConfig, queues: QueuesConfig) -> list[str]:
    """Make the topics that are missing, and return their names once the brokers know them.

    Several processes may do so at once. A topic that is there is left as it is.

    Raises:
        BrokerUnreachable: no broker answers, or what answers is none.
        BrokerRefused: the brokers refuse to make one.
    """
    async with open_admin(config.brokers()) as admin:
        findings = await _compare(admin, wanted_topics(config, queues))
        missing = [finding.wanted for finding in findings if finding.existing is None]
        return await admin.create(
            [
                NewTopic(
                    topic.name,
                    topic.partitions,
                    config.replication_factor,
                    topic.declaration.kafka_settings(),
                )
                for topic in missing
            ]
        )


async def _compare(admin: Admin, topics: Sequence[WantedTopic]) -> list[TopicFinding]:
    there = await admin.existing([topic.name for topic in topics])
    return [
        TopicFinding(topic, there.get(topic.name), tuple(problems(topic, there.get(topic.name))))
        for topic in topics
    ]


def problems(topic: WantedTopic, existing: ExistingTopic | None) -> Iterator[TopicProblem]:
    """Judge one topic by what the brokers have of it."""
    if existing is None:
        yield _problem(topic, "missing", _missing(topic))
        return
    if topic.exact and existing.partitions != topic.partitions:
        yield _problem(topic, "partitions", _wrong_partitions(topic, existing.partitions))
    declared = topic.declaration
    cleanup = existing.settings.get("cleanup.policy", declared.cleanup)
    if cleanup != declared.cleanup:
        yield _problem(topic, "cleanup", _wrong_cleanup(topic, cleanup))
    right = _TIMESTAMPS[declared.timestamps]
    if existing.settings.get("message.timestamp.type", right) != right:
        yield _problem(topic, "timestamps", _wrong_timestamps(topic, right))
    most = existing.settings.get("max.message.bytes", "")
    if most and int(most) < (declared.max_message_bytes or 0):
        yield _problem(topic, "max_message_bytes", _too_small(topic, int(most)))
    kept = existing.settings.get("delete.retention.ms", "")
    if kept and int(kept) < (declared.tombstone_retention_ms or 0):
        yield _problem(topic, "tombstones", _forgets_removals(topic, int(kept)))


def _problem(
    topic: WantedTopic,
    what: What,
    text: str,
) -> TopicProblem:
    role = topic.declaration.role
    # A producer's topic is its owner's: we work with it as far as it can be worked with.
    yours = role is Role.PRODUCER and what not in ("missing", "partitions")
    return TopicProblem(topic.name, role, what, "warning" if yours else "error", text)


def _missing(topic: WantedTopic) -> str:
    if topic.declaration.role is Role.PRODUCER:
        return (
            f"Topic {topic.name}, which a route of queues.yaml reads, is missing: "
            f"`ringfaust topics create` makes it with {_count(topic.partitions)}."
        )
    return f"Topic {topic.name} is missing: `ringfaust topics create` makes it."


def _wrong_partitions(topic: WantedTopic, there: int) -> str:
    if topic.declaration.role is Role.PRODUCER:
        return (
            f"Topic {topic.name} has {_count(there)}, but a topic that is read without a hop needs "
            f"exactly {topic.partitions} (`partitions` of worker.yaml), for its records must be in "
            "the partition that their queue lives in: give its route hop: always."
        )
    return (
        f"Topic {topic.name} has {_count(there)}, but `partitions` of worker.yaml is "
        f"{topic.partitions}, and what is decided in a partition is written to the partition of "
        f"the same number: set partitions to {there}, or choose another `application`."
    )


def _wrong_cleanup(topic: WantedTopic, there: str) -> str:
    if topic.declaration.cleanup == "compact":
        follows = "Kafka would throw away state for its age, and rings with it"
    else:
        follows = "Kafka may throw away a record before it is read when its key comes again"
    mend = _mend(topic, "cleanup.policy")
    return f"Topic {topic.name} has cleanup.policy={there}: {follows}. {mend}"


def _wrong_timestamps(topic: WantedTopic, right: str) -> str:
    match topic.declaration.role:
        case Role.PRODUCER:
            follows = (
                "which could be wrong and so are not used: ttl, delay and age count from when a "
                "worker reads a record instead of from its send"
            )
        case Role.CONTROL | Role.HOP:
            follows = "so that a client with a wrong clock could move time"
        case _:
            follows = "so that its records do not tell when things were decided, but when written"
    mend = _mend(topic, "message.timestamp.type")
    whose = "its writers' timestamps" if right == "LogAppendTime" else "the brokers' timestamps"
    return f"Topic {topic.name} carries {whose}, {follows}. {mend}"


def _too_small(topic: WantedTopic, there: int) -> str:
    return (
        f"Topic {topic.name} takes records of up to {there:,} bytes only, but needs "
        f"{topic.declaration.max_message_bytes:,}: a larger record would stop the worker. "
        f"{_mend(topic, 'max.message.bytes')}"
    )


def _forgets_removals(topic: WantedTopic, there: int) -> str:
    return (
        f"Topic {topic.name} tells only for {there:,} ms that a row was removed "
        "(delete.retention.ms), but a worker trusts local state that is up to "
        f"{topic.declaration.tombstone_retention_ms:,} ms old: messages that had left their queue "
        f"could come back. {_mend(topic, 'delete.retention.ms')}"
    )


def _mend(topic: WantedTopic, setting: str) -> str:
    """The command that puts a setting right; it is the owner's to give."""
    return (
        f"To mend it: kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} "
        f"--add-config {setting}={topic.declaration.kafka_settings()[setting]}"
    )


def _count(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"
