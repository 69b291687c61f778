"""The check of `ringfaust doctor` for permissions: what the brokers let a worker's user do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from shlex import quote

from ringfaust.cli.finding import Finding
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.config.topics import wanted_topics
from ringfaust.kafka.admin import open_admin
from ringfaust.kafka.names import worker_group
from ringfaust.kafka.vendor import Authorized
from ringfaust.protocol.records import Role

_CHECK = "acls"


class Operation(IntEnum):
    """What an ACL allows, by Kafka's numbers."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10

    @property
    def title(self) -> str:
        """Its name for kafka-acls.sh."""
        return self.name.title().replace("_", "")


_READ = {
    Role.PRODUCER, Role.CONTROL, Role.HOP, Role.CHANGELOG, Role.STATUS, Role.CONFIGURATION,
}  # fmt: skip
_NOT_WRITTEN = {Role.PRODUCER, Role.CONTROL, Role.CONFIGURATION}
_GROUP = (Operation.READ, Operation.DESCRIBE)


def needed(role: Role) -> tuple[Operation, ...]:
    """What a worker does with a topic. docs/operations.md lists the same."""
    found = [Operation.READ] if role in _READ else []
    found += [] if role in _NOT_WRITTEN else [Operation.WRITE]
    return (*found, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


async def permissions(worker: WorkerConfig, queues: QueuesConfig) -> list[Finding]:
    """Whether the brokers' ACLs let this user run a worker."""
    roles = {each.name: each.declaration.role for each in wanted_topics(worker, queues)}
    async with open_admin(worker.brokers()) as admin:
        found = await admin.authorized(list(roles), worker_group(worker.application))
    if found is None:
        text = "these brokers do not say what this user may do: they are older than Kafka 3.1"
        return [Finding(_CHECK, "warn", text, "compare its ACLs with docs/operations.md, Security")]
    if not found.has_authorizer:
        text = "the brokers have no authorizer, so there are no ACLs: every client may do anything"
        return [Finding(_CHECK, "ok", text)]
    missing = list(_missing(found, worker, roles))
    text = "this user has the permissions of a worker on all topics and the group"
    return missing or [Finding(_CHECK, "ok", text)]


def _missing(
    found: Authorized, worker: WorkerConfig, roles: Mapping[str, Role]
) -> Iterator[Finding]:
    for name, bits in found.topics.items():
        if lacks := _lacks(bits, needed(roles[name])):
            yield _finding(worker, f"topic {name}", f"--topic {name}", lacks)
    group = worker_group(worker.application)
    if lacks := _lacks(found.group, _GROUP):
        yield _finding(worker, f"group {group}", f"--group {group}", lacks)


def _lacks(bits: int, wanted: tuple[Operation, ...]) -> list[Operation]:
    return [each for each in wanted if not bits >> each & 1]


def _finding(worker: WorkerConfig, what: str, option: str, lacks: list[Operation]) -> Finding:
    user = worker.security.username or "NAME"
    titles = [each.title for each in lacks]
    remedy = (
        f"kafka-acls.sh --bootstrap-server {worker.bootstrap_servers} --add --allow-principal "
        f"{quote(f'User:{user}')} {' '.join(f'--operation {each}' for each in titles)} {option}"
    )
    return Finding(_CHECK, "fail", f"this user lacks {', '.join(titles)} on {what}", remedy)
