"""`definitions.json` of RabbitMQ: queues, policies, exchanges with their bindings, permissions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ringfaust.importers.artemis_security import allow, allow_control
from ringfaust.importers.imported import FILE_BYTES, CannotImport, Fields, Imported, Verdict
from ringfaust.importers.rabbitmq_bindings import PREDECLARED, Conditions
from ringfaust.importers.rabbitmq_policies import Policies, compiled
from ringfaust.importers.rabbitmq_queues import (
    queue_fields,
    queue_type,
    read_settings,
    set_attempts,
)
from ringfaust.kafka.names import topic_name
from ringfaust.protocol.records import Role

_SECTIONS = frozenset(
    {"queues", "exchanges", "bindings", "policies", "parameters", "permissions", "users", "vhosts"}
)
_ABOUT_BROKER = frozenset({"rabbit_version", "rabbitmq_version", "product_name", "product_version",
                           "rabbitmq_definition_format", "original_vhost_name",
                           "original_cluster_name", "explanation", "metadata", "description",
                           "default_queue_type", "policies_for_exchanges"})  # fmt: skip
_SHOWN = 80
_NEWEST = 4
"""The newest version of RabbitMQ whose defaults are known here."""


def import_rabbitmq(path: Path) -> Imported:
    """Read the definitions that `rabbitmqctl export_definitions` writes.

    Raises:
        CannotImport: the file is too large, not JSON, or not RabbitMQ's definitions.
    """
    data = _read(path)
    imported = Imported(path)
    parameters = _entries(data, "parameters", path)
    policies = Policies(_entries(data, "policies", path), parameters, path)
    names = _Names(data, path)
    why = "a setting of the broker or a plugin"
    for section in sorted(data.keys() - _SECTIONS - _ABOUT_BROKER):
        if data[section]:
            imported.note(Verdict.NONE, 0, section[:_SHOWN], why)
    for each in parameters:
        if each.get("component") != "operator_policy":
            about = f"parameter {each.get('component')} {each.get('name')}"
            imported.note(Verdict.NONE, 0, about[:_SHOWN], why)
    fields = _queues(data, path, policies, imported, names)
    _exchanges(data, path, fields, imported, names)
    for name, own in fields.items():
        imported.queues[name] = own
    hosts = {_vhost(each) for each in _entries(data, "queues", path)} or {"/"}
    for pattern, given in policies.for_later_queues(hosts, names.origins, imported).items():
        imported.settings[pattern] = read_settings(given, imported)
    imported.add_routes()
    _permissions(data, path, imported, names)
    return imported


class _Names:
    """What queues and exchanges are called here.

    In RabbitMQ a name is unique only within its virtual host, and among queues or exchanges.
    """

    def __init__(self, data: Mapping[str, Any], path: Path) -> None:
        queues = _entries(data, "queues", path)
        self.is_prefixed = len({_vhost(each) for each in queues}) > 1
        bound = {
            (_vhost(each), str(each.get("destination", "")))
            for each in _entries(data, "bindings", path)
            if each.get("source")
        }
        own = {(_vhost(each), str(each.get("name", ""))) for each in queues} - bound
        self._queues = {self.queue(vhost, name) for vhost, name in own}
        """The queues that no exchange feeds."""
        self.origins: dict[str, tuple[str, str]] = {}
        """By name of a queue or exchange here: its virtual host, and its name there."""

    def queue(self, vhost: str, name: str) -> str:
        """The name of a queue; with several virtual hosts, theirs come first."""
        return f"{vhost}.{name}" if self.is_prefixed and vhost != "/" else name

    def exchange(self, vhost: str, name: str) -> str:
        """The name of an exchange, which differs from those of the queues that it does not feed."""
        here = self.queue(vhost, name)
        while here in self._queues:
            here += "-exchange"
        return here


def _vhost(entry: Mapping[str, Any]) -> str:
    return str(entry.get("vhost", "/"))


def _read(path: Path) -> dict[str, Any]:
    if path.stat().st_size > FILE_BYTES:
        raise CannotImport(path, 0, f"is larger than {FILE_BYTES >> 20} MiB")
    try:
        data = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise CannotImport(path, error.lineno, f"not JSON: {error.msg}") from None
    except UnicodeDecodeError:
        raise CannotImport(path, 0, "not JSON: it is not UTF-8") from None
    except RecursionError:
        raise CannotImport(path, 0, "nests too deeply") from None
    if not isinstance(data, dict) or not data.keys() & _SECTIONS:
        text = 'is not RabbitMQ\'s definitions, which are {"queues": […], "exchanges": […], …}'
        raise CannotImport(path, 1, text)
    return data


def _entries(data: Mapping[str, Any], section: str, path: Path) -> list[dict[str, Any]]:
    entries = data.get(section, [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise CannotImport(path, 0, f"{section} is not a list of objects")
    for each in entries:
        for part in ("arguments", "definition"):
            if each.get(part) and not isinstance(each[part], dict):
                name = str(each.get("name"))[:_SHOWN]
                raise CannotImport(path, 0, f"{section}, {name!r}: {part} is not an object")
    return entries


def _queues(
    data: Mapping[str, Any], path: Path, policies: Policies, imported: Imported, names: _Names
) -> dict[str, Fields]:
    """Return the fields of each queue by name."""
    found: dict[str, Fields] = {}
    version, noted = _version(data), set[str]()
    for each in _entries(data, "queues", path):
        vhost, name = _vhost(each), str(each.get("name", ""))
        about = f"queue {name[:_SHOWN]}"
        ours = names.queue(vhost, name)
        if ours != name:
            why = f"called {ours}: there are no virtual hosts, and applications have own names"
            imported.note(Verdict.CHANGED, 0, f"{about}, vhost = {vhost}", why)
        if imported.is_name(ours, 0, about):
            imported.note(Verdict.TAKEN, 0, about, f"queue {ours}")
            names.origins[ours] = vhost, name
            policy = policies.of(vhost, name, ours, queue_type(each), imported)
            found[ours] = queue_fields(each, ours, policy, imported)
            set_attempts(each, found[ours], version, noted, imported)
    return found


def _version(data: Mapping[str, Any]) -> int:
    """The first number of RabbitMQ's version; 4 if the file does not say it."""
    text = str(data.get("rabbit_version") or data.get("rabbitmq_version") or "")
    first = text.partition(".")[0]
    return int(first) if first.isdecimal() and len(first) < 4 else _NEWEST


def _exchanges(
    data: Mapping[str, Any], path: Path, queues: dict[str, Fields], imported: Imported,
    names: _Names,
) -> None:  # fmt: skip
    """Turn each exchange that queues are bound to into an address with these queues."""
    kinds: dict[str, str] = {}
    for each in _entries(data, "exchanges", path):
        name, kind = str(each.get("name", "")), str(each.get("type", ""))
        arguments = each.get("arguments") or {}
        if kind == "x-delayed-message":
            kind = str(arguments.get("x-delayed-type", "direct"))
            why = "the producer sets ringfaust-delay-ms instead of x-delay"
            imported.note(Verdict.CHANGED, 0, f"exchange {name}, type x-delayed-message", why)
        if "alternate-exchange" in arguments:
            why = "a message that no queue accepts is reported as the event `unrouted`"
            about = f"exchange {name}, alternate-exchange"
            imported.note(Verdict.NONE, 0, about, why)
        ours = names.exchange(_vhost(each), name)
        names.origins.setdefault(ours, (_vhost(each), name))
        kinds[ours] = kind
        if name and ours != name:
            why = f"called {ours}: an exchange here has a name that no queue and no other one has"
            imported.note(Verdict.CHANGED, 0, f"exchange {name[:_SHOWN]}", why)
    conditions: dict[str, Conditions] = {}
    for each in _entries(data, "bindings", path):
        vhost, exchange = _vhost(each), str(each.get("source", ""))
        source = exchange and names.exchange(vhost, exchange)
        target = names.queue(vhost, str(each.get("destination", "")))
        key = str(each.get("routing_key", ""))
        about = f"binding {source} -> {target}, routing_key = {key}"
        known = kinds.get(source) or PREDECLARED.get(exchange)
        if not source:  # the default exchange leads to every queue by its name
            continue
        if each.get("destination_type", "queue") != "queue":
            why = "an address does not feed another one: bind the queues themselves"
            imported.note(Verdict.NONE, 0, about, why)
        elif known is None:
            why = f"the file does not declare the exchange {exchange[:_SHOWN]}, so its type is open"
            imported.note(Verdict.NONE, 0, about, why)
        elif imported.is_name(source, 0, about):
            names.origins.setdefault(source, (vhost, exchange))
            if members := _members(source, target, queues, about, imported):
                fields, found = members[target], conditions.setdefault(target, Conditions())
                ours = f"queue {source}::{target}"
                _bind(fields, found, known, each, ours=ours, about=about, imported=imported)


def _members(
    source: str, target: str, queues: dict[str, Fields], about: str, imported: Imported
) -> dict[str, Fields] | None:
    """Return the subscriptions of an address, with this one; None if it cannot have it."""
    for name, address in imported.addresses.items():
        if name != source and target in cast("dict[str, Fields]", address.get("subscriptions", {})):
            why = f"queue {target} belongs to address {name}, and a queue has one address"
            imported.note(Verdict.NONE, 0, about, why)
            return None
    declared = imported.addresses.setdefault(source, {})
    members = cast("dict[str, Fields]", declared.setdefault("subscriptions", {}))
    if target not in members:
        if target not in queues:
            imported.note(Verdict.NONE, 0, about, "there is no such queue in the file")
            return None
        members[target] = {**queues.pop(target), "shared": True}
    return members


def _bind(
    fields: Fields, conditions: Conditions, kind: str, binding: Mapping[str, Any], *, ours: str,
    about: str, imported: Imported,
) -> None:  # fmt: skip
    condition = conditions.add(kind, binding)
    selector = conditions.selector()
    fields["selector"] = selector or ""
    if condition is None or selector is None:
        why = (
            "this combination of words cannot be a selector"
            if condition is None
            else "the selector of all its bindings is too long"
        )
        imported.note(Verdict.NONE, 0, about, f"{why}, so the queue gets every message")
        return
    said = f"{ours}, selector: {condition}; the producer sets the header routing_key"
    imported.note(Verdict.CHANGED, 0, about, said if condition else ours)


def _permissions(data: Mapping[str, Any], path: Path, imported: Imported, names: _Names) -> None:
    """Turn the permissions of users into ACLs of Kafka."""
    for each in _entries(data, "users", path):
        about = f"user {str(each.get('name', ''))[:_SHOWN]}"
        why = "Kafka authenticates users: create them there with new passwords"
        imported.note(Verdict.NONE, 0, about, why)
    for each in _entries(data, "permissions", path):
        user = str(each.get("user", ""))
        if not re.fullmatch(r"[\w.@+-]+", user):
            why = "a user's name in these commands has letters, digits and . _ @ + -"
            imported.note(Verdict.NONE, 0, f"permissions of {user[:_SHOWN]!r}", why)
            continue
        about, vhost = f"permissions of {user}", _vhost(each)
        written = str(each.get("write") or "")
        pattern = compiled(written, about, path)
        topics = [
            topic
            for topic, queue in imported.routes.items()
            if written and _may_write(pattern, vhost, names.origins.get(queue), names)
        ]
        for topic in topics:
            allow(imported, user, topic, "Write")
        if each.get("read") or each.get("configure"):
            allow_control(imported, user)
        if each.get("read"):
            allow(imported, user, topic_name("ringfaust", Role.DISPATCHED), "Read")
        why = "in acls.sh; reading and configuring are permissions for all queues"
        if written and not topics:
            why += f"; write = {written[:_SHOWN]} covers no queue or exchange of the file"
        imported.note(Verdict.CHANGED, 0, f"{about} in vhost {vhost[:_SHOWN]}", why)


def _may_write(
    write: re.Pattern[str], vhost: str, origin: tuple[str, str] | None, names: _Names
) -> bool:
    """Whether it covers a queue or exchange; no origin: a topic for those of all hosts."""
    if origin is None:
        return write.pattern in (".*", "^.*$") and not names.is_prefixed
    return vhost == origin[0] and write.search(origin[1]) is not None
