"""Users and permissions of RabbitMQ's definitions, and the ACLs of Kafka that they become."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ringfaust.importers.imported import Imported, Verdict
from ringfaust.importers.rabbitmq_names import SHOWN, Definitions, Names, vhost_of
from ringfaust.importers.rabbitmq_policies import NOT_READ, compiled

_Topics = frozenset[tuple[str, str, str]]
"""User, virtual host and exchange of the permissions for topics."""

_DEFAULT_EXCHANGE = "amq.default"
"""What RabbitMQ calls the exchange without a name when it asks for rights."""


def read_permissions(definitions: Definitions, names: Names, imported: Imported) -> None:
    """Turn the permissions of users into ACLs of Kafka.

    Raises:
        CannotImport: a section is not a list of objects.
    """
    for each in definitions.entries("users"):
        about = f"user {str(each.get('name', ''))[:SHOWN]}"
        why = "Kafka authenticates users: create them there with new passwords"
        imported.note(Verdict.NONE, 0, about, why)
    restricted = set()
    for each in definitions.entries("topic_permissions"):
        user, exchange = str(each.get("user", "")), str(each.get("exchange", ""))
        restricted.add((user, vhost_of(each), exchange))
        about = f"topic permission of {user[:SHOWN]} for exchange {exchange[:SHOWN]}"
        why = "ACLs do not know routing keys, so the user gets no right to write to this exchange"
        imported.note(Verdict.NONE, 0, about, why)
    for each in definitions.entries("permissions"):
        _permit(each, frozenset(restricted), imported, names)


def _permit(
    entry: Mapping[str, Any], restricted: _Topics, imported: Imported, names: Names
) -> None:
    user, vhost = str(entry.get("user", "")), vhost_of(entry)
    about = f"permissions of {user[:SHOWN]} in vhost {vhost[:SHOWN]}"
    if not imported.is_user(user, 0, about):
        return
    left: list[str] = []
    taken = False
    for right in ("write", "read", "configure"):
        pattern = str(entry.get(right) or "")
        if not pattern:  # no right at all
            continue
        matches = compiled(pattern)
        if matches is None:
            left.append(f"no right to {right}, since {pattern[:SHOWN]} {NOT_READ}")
            continue
        topics = list(_topics(matches, (user, vhost), restricted, imported, names))
        is_found = any(
            host == vhost and matches.search(name.encode()) for host, name in names.queues.values()
        )
        if right == "write":
            for topic in topics:
                imported.allow(user, topic, "Write")
        elif is_found and right == "read":
            imported.allow_receiving(user)
        elif is_found:
            imported.allow_control(user)
        if not (topics if right == "write" else is_found):
            what = "exchange" if right == "write" else "queue"
            left.append(f"{right} = {pattern[:SHOWN]} covers no {what} of the file")
        else:
            taken = True
    why = "in acls.sh; reading and configuring are permissions for all queues"
    why = "; ".join([why] * taken + left) or "no right, as in the file"
    verdict = Verdict.CHANGED if taken else Verdict.NONE
    imported.note(verdict if left or taken else Verdict.TAKEN, 0, about, why)


def _topics(
    write: re.Pattern[bytes],
    who: tuple[str, str],
    restricted: _Topics,
    imported: Imported,
    names: Names,
) -> Iterator[str]:
    """Yield the topics of the exchanges that a pattern covers.

    To send, RabbitMQ asks for the right at the exchange alone (rabbit_channel, basic.publish): at
    `amq.default` for a queue that gets messages by its name. The records of a topic with a template
    name any queue or exchange, so the pattern has to cover all of them.
    """
    origins = names.origins
    for topic, queue in imported.routes.items():
        named = [queue] if queue in origins else origins
        exchanges = {
            (vhost, name if each in imported.addresses else _DEFAULT_EXCHANGE)
            for each in named
            for vhost, name in [origins[each]]
        }
        if all(
            host == who[1] and write.search(name.encode()) and (*who, name) not in restricted
            for host, name in exchanges
        ):
            yield topic
