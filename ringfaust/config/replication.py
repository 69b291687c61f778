"""What the brokers must provide besides the topics: enough copies of each, and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from aiokafka.errors import KafkaError, TransactionalIdAuthorizationFailed

from ringfaust.kafka.admin import ExistingTopic

TRANSACTION_LOG = "__transaction_state"
"""Kafka's own topic that holds the state of all transactions."""


def replication_problems(
    name: str, existing: ExistingTopic, replication_factor: int
) -> Iterator[tuple[Literal["copies", "min_insync", "in_sync"], str]]:
    """Yield what is wrong with the copies of one of our topics, which workers write `acks=all`.

    Args:
        name: of the topic.
        existing: the topic on the brokers.
        replication_factor: as in worker.yaml; -1 demands nothing.
    """
    needed = int(existing.settings.get("min.insync.replicas") or 1)
    copies = existing.copies
    if copies < needed:
        yield "min_insync", _cannot_be_written(name, copies, needed)
    elif existing.in_sync < needed:
        yield "in_sync", _too_few_in_sync(name, existing.in_sync, needed)
    elif copies > 2 and needed < 2:
        yield "copies", _may_lose_records(name, copies)
    if copies < replication_factor:
        yield "copies", _too_few_copies(name, copies, replication_factor)


def _cannot_be_written(name: str, copies: int, needed: int) -> str:
    return (
        f"Topic {name} has {_copies(copies)} of each partition, but min.insync.replicas="
        f"{needed}: nothing can be written to it with acks=all, so no worker can commit. Add "
        f"copies with kafka-reassign-partitions.sh, or lower the setting. "
        f"To set it: {set_command(name, 'min.insync.replicas', copies)}"
    )


def _too_few_in_sync(name: str, in_sync: int, needed: int) -> str:
    return (
        f"Topic {name} has a partition with {_copies(in_sync)} in sync, but "
        f"min.insync.replicas={needed}: workers cannot commit until more brokers are back. Start "
        "the missing brokers."
    )


def _may_lose_records(name: str, copies: int) -> str:
    return (
        f"Topic {name} has {_copies(copies)} of each partition, but min.insync.replicas=1: "
        "if one broker fails, records that it acknowledged alone can be lost. "
        f"To set it: {set_command(name, 'min.insync.replicas', 2)}"
    )


def _too_few_copies(name: str, copies: int, wanted: int) -> str:
    return (
        f"Topic {name} has {_copies(copies)} of each partition, but replication_factor in "
        f"worker.yaml is {wanted}: rings can be lost with fewer brokers than you intend. Add "
        "copies with kafka-reassign-partitions.sh, or lower replication_factor."
    )


def no_coordinator(error: KafkaError, application: str) -> str:
    """Explain why no worker can run transactions, and what to do.

    Args:
        error: what the brokers answered when they were asked for a coordinator.
        application: the prefix of the workers' transactional ids.
    """
    if isinstance(error, TransactionalIdAuthorizationFailed):
        return (
            "The brokers do not allow this user to run transactions, which every worker needs. "
            "Grant write and describe on its ids: kafka-acls.sh --bootstrap-server HOST:PORT --add "
            "--allow-principal User:NAME "
            "--operation write --operation describe --resource-pattern-type prefixed "
            f"--transactional-id {application}-"
        )
    return (
        f"The brokers name no transaction coordinator ({type(error).__name__}), so no worker can "
        f"commit. Usually topic {TRANSACTION_LOG} cannot be created: "
        "transaction.state.log.replication.factor (3 by default) must not exceed the number of "
        "brokers. Set it and transaction.state.log.min.isr to 1 on a single broker; else start "
        "the missing brokers."
    )


def set_command(topic: str, setting: str, value: object) -> str:
    """Return the command that sets a setting of a topic, for its owner to run."""
    return (
        "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
        f"--entity-name {topic} "
        f"--add-config {setting}={value}"
    )


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"
