"""The topics of an application: what each must look like, and what is wrong with existing ones.

`topics/*.yaml` declares one topic for each role. This module derives the topics that an application
needs, and compares them with those on the brokers. It never alters or deletes a topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.documents import ConfigModel, read, refuse, shipped
from ringfaust.config.replication import (
    TRANSACTION_LOG,
    no_coordinator,
    replication_problems,
    set_command,
)
from ringfaust.errors import RingfaustError
from ringfaust.kafka.admin import ExistingTopic, KafkaAdmin, NewTopic, open_admin
from ringfaust.kafka.names import partition_transactional_id
from ringfaust.protocol.records import Role

_PRODUCER_NAME = "{topic}"
_TIMESTAMPS = {"append": "LogAppendTime", "create": "CreateTime"}

_Ms = Annotated[int, Field(ge=1)]


class TopicDeclaration(ConfigModel):
    """One file of `topics/`: what a topic with this role looks like."""

    role: Annotated[Role, Field(strict=False)]
    name: str
    """Template of the name: `{application}` or, for producers' topics, `{topic}`."""
    partitions: Literal["application", "any"]
    cleanup: Literal["delete", "compact"]
    retention_ms: _Ms | None = None
    """How long records are kept. None: the brokers' default."""
    segment_bytes: Annotated[int, Field(ge=1 << 20)] | None = None
    tombstone_retention_ms: _Ms | None = None
    """How long a compacted topic keeps the tombstone of a removed row."""
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
            raise refuse(f"must be {right!r}, the name that workers use", "name")
        return self

    def kafka_settings(self) -> dict[str, str]:
        """Return the settings with which Kafka creates such a topic."""
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
    """A topic that the application needs."""

    name: str
    declaration: TopicDeclaration
    partitions: int
    """How many it is created with."""
    exact: bool
    """Whether an existing topic must have exactly this number of partitions."""


What = Literal[
    "missing", "partitions", "cleanup", "timestamps", "max_message_bytes", "tombstones",
    "copies", "min_insync", "in_sync", "coordinator",
]  # fmt: skip
_WARNINGS = {"copies", "in_sync"}
"""What a worker can run with, even in its own topics."""
_OPTIONAL = {Role.STATUS, Role.CONFIGURATION}
"""Topics without which a worker can do its work."""


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """One thing that is wrong with a topic."""

    topic: str
    what: What
    severity: Literal["error", "warning"]
    """A worker starts despite warnings."""
    text: str
    """What is wrong, the consequence, and what to do, in one or two sentences."""

    def __str__(self) -> str:
        return self.text


class WrongTopics(RingfaustError):
    """The topics are not as the rings need them.

    `ringfaust topics create` creates missing topics; the text explains everything else.
    """

    def __init__(self, problems: Sequence[TopicProblem]) -> None:
        text = "\n".join(f"- {problem.text}" for problem in problems)
        super().__init__(f"the worker cannot start with these topics:\n{text}")


class TopicFinding(NamedTuple):
    """A topic that the application needs, compared with the brokers."""

    wanted: WantedTopic
    existing: ExistingTopic | None
    problems: tuple[TopicProblem, ...]


@cache
def declarations() -> dict[Role, TopicDeclaration]:
    """Return the shipped declarations.

    Raises:
        ConfigError: a file is missing or not valid.
    """
    folder = shipped("topics")
    return {role: read(folder / f"{role}.yaml").model(TopicDeclaration) for role in Role}


def wanted_topics(config: WorkerConfig, queues: QueuesConfig) -> list[WantedTopic]:
    """Return the topics that the application needs: its own, then those that its routes read."""
    known = declarations()
    own = [
        WantedTopic(config.topic(role), known[role], config.partitions, exact=True)
        for role in Role
        if role is not Role.PRODUCER
    ]
    producers = [
        WantedTopic(
            route.topic,
            known[Role.PRODUCER],
            config.partitions,
            exact=not route.needs_hop(config.partitions),
        )
        for route in queues.routes
    ]
    return own + producers


async def compare_topics(config: WorkerConfig, queues: QueuesConfig) -> list[TopicFinding]:
    """Compare the topics that the application needs with those on the brokers.

    Raises:
        BrokerUnreachable: nothing answers, or what answers is not a Kafka broker.
        BrokerRefused: a broker answers but cannot describe its topics.
    """
    async with open_admin(config.brokers()) as admin:
        return await _compare(admin, wanted_topics(config, queues))


async def check_topics(config: WorkerConfig, queues: QueuesConfig) -> list[TopicProblem]:
    """Return what is wrong with the topics, and with the log of transactions.

    A worker may start unless one problem is an error.

    Raises:
        BrokerUnreachable: nothing answers, or what answers is not a Kafka broker.
        BrokerRefused: a broker answers but cannot describe its topics.
    """
    async with open_admin(config.brokers()) as admin:
        findings = await _compare(admin, wanted_topics(config, queues))
        transactional_id = partition_transactional_id(config.application, 0)
        error = await admin.coordinator_error(transactional_id)
    found = [problem for finding in findings for problem in finding.problems]
    for finding in findings:
        name = finding.wanted.name
        if finding.existing and finding.wanted.declaration.role is not Role.PRODUCER:
            wrong = replication_problems(name, finding.existing, config.replication_factor)
            found += [_problem(finding.wanted, what, text) for what, text in wrong]
    if error is not None:
        text = no_coordinator(error, config.application)
        found.append(TopicProblem(TRANSACTION_LOG, "coordinator", "error", text))
    return found


async def create_topics(config: WorkerConfig, queues: QueuesConfig) -> list[str]:
    """Create the missing topics and wait until the brokers list them. Returns their names.

    Existing topics stay as they are, so several processes may call this at once.

    Raises:
        BrokerUnreachable: nothing answers, or what answers is not a Kafka broker.
        BrokerRefused: the brokers refuse to create one.
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


async def _compare(admin: KafkaAdmin, topics: Sequence[WantedTopic]) -> list[TopicFinding]:
    found = await admin.existing([topic.name for topic in topics])
    return [
        TopicFinding(topic, found.get(topic.name), tuple(problems(topic, found.get(topic.name))))
        for topic in topics
    ]


def problems(topic: WantedTopic, existing: ExistingTopic | None) -> Iterator[TopicProblem]:
    """Yield what is wrong with a topic. `existing` is None if the brokers do not have it."""
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
        yield _problem(topic, "tombstones", _drops_tombstones(topic, int(kept)))


def _problem(topic: WantedTopic, what: What, text: str) -> TopicProblem:
    # A producer's topic is not ours to judge: only what makes it unusable is an error. And a worker
    # that cannot publish its status, or to which nothing can be applied, still does its work.
    role = topic.declaration.role
    is_usable = role is Role.PRODUCER and what not in ("missing", "partitions")
    is_warning = what in _WARNINGS or is_usable or role in _OPTIONAL
    return TopicProblem(topic.name, what, "warning" if is_warning else "error", text)


GROWN_REMEDY = (
    "Remove its route from queues.yaml and start the workers; consume or purge the messages of its "
    "queues; then stop the workers and add the route again with hop: always"
)
"""What to do about a topic that is read directly and has got more partitions (R113)."""


def _missing(topic: WantedTopic) -> str:
    if topic.declaration.role is Role.PRODUCER:
        return (
            f"Topic {topic.name}, which a route of queues.yaml reads, does not exist. "
            f"`ringfaust topics create` creates it with {_count(topic.partitions)}."
        )
    return f"Topic {topic.name} does not exist. `ringfaust topics create` creates it."


def _wrong_partitions(topic: WantedTopic, there: int) -> str:
    if topic.declaration.role is Role.PRODUCER:
        return (
            f"Topic {topic.name} has {_count(there)}, but a topic that is read without the hop "
            f"needs exactly {topic.partitions} (`partitions` in worker.yaml), because each record "
            f"must be in the partition of its queue. {GROWN_REMEDY}."
        )
    return (
        f"Topic {topic.name} has {_count(there)}, but `partitions` in worker.yaml is "
        f"{topic.partitions}. Each partition's output goes to the partition with the same number, "
        f"so the two must be equal. Set partitions to {there}, or choose another `application`. "
        "Another number moves queues to other partitions, so empty them first."
    )


def _wrong_cleanup(topic: WantedTopic, there: str) -> str:
    if topic.declaration.role is Role.STATUS:
        follows = "Kafka would delete the rows of queues that are idle, or keep old rows for ever"
    elif topic.declaration.cleanup == "compact":
        follows = "Kafka would delete old state, and rings with it"
    else:
        follows = (
            "Kafka may delete a record before it is read, if its key is written again, and such a "
            "gap is not reported"
        )
    remedy = _remedy(topic, "cleanup.policy")
    return f"Topic {topic.name} has cleanup.policy={there}: {follows}. {remedy}"


def _wrong_timestamps(topic: WantedTopic, right: str) -> str:
    match topic.declaration.role:
        case Role.PRODUCER:
            follows = (
                "which may be wrong and are therefore ignored: ttl, delay and age count from when "
                "a worker reads a record, not from when it was sent"
            )
        case Role.CONTROL | Role.HOP:
            follows = "so a client with a wrong clock could change the time of the rings"
        case _:
            follows = "so its records show when they were written, not when a worker decided"
    remedy = _remedy(topic, "message.timestamp.type")
    whose = "its writers' timestamps" if right == "LogAppendTime" else "the brokers' timestamps"
    return f"Topic {topic.name} has {whose}, {follows}. {remedy}"


def _too_small(topic: WantedTopic, there: int) -> str:
    return (
        f"Topic {topic.name} accepts records of up to {there:,} bytes, but needs to accept "
        f"{topic.declaration.max_message_bytes:,}: a larger record would stop the worker. "
        f"{_remedy(topic, 'max.message.bytes')}"
    )


def _drops_tombstones(topic: WantedTopic, there: int) -> str:
    return (
        f"Topic {topic.name} keeps the tombstones of removed rows for only {there:,} ms "
        "(delete.retention.ms), but a worker trusts local state that is up to "
        f"{topic.declaration.tombstone_retention_ms:,} ms old: messages that have left their queue "
        f"could come back. {_remedy(topic, 'delete.retention.ms')}"
    )


def _remedy(topic: WantedTopic, setting: str) -> str:
    value = topic.declaration.kafka_settings()[setting]
    return f"To fix it: {set_command(topic.name, setting, value)}"


def _count(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"
