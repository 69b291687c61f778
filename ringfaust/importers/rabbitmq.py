"""`definitions.json` of RabbitMQ: queues, policies, exchanges with their bindings, permissions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ringfaust.importers.artemis_security import allow, allow_control
from ringfaust.importers.imported import FILE_BYTES, CannotImport, Fields, Imported, Verdict
from ringfaust.importers.rabbitmq_bindings import selector_of
from ringfaust.importers.rabbitmq_queues import Policies, queue_fields, set_attempts
from ringfaust.kafka.names import topic_name
from ringfaust.protocol.records import Role

_SECTIONS = frozenset(
    {"queues", "exchanges", "bindings", "policies", "permissions", "users", "vhosts"}
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
    policies = Policies(_entries(data, "policies", path), path)
    names = _Names(data, path)
    for section in sorted(data.keys() - _SECTIONS - _ABOUT_BROKER):
        if data[section]:
            why = "a setting of the broker or a plugin"
            imported.note(Verdict.NONE, 0, section[:_SHOWN], why)
    fields = _queues(data, path, policies, imported, names)
    _exchanges(data, path, fields, imported, names)
    for name, own in fields.items():
        imported.queues[name] = own
    policies.leftovers(imported)
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
            found[ours] = queue_fields(each, ours, policies.of(vhost, name, each), imported)
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
    for each in _entries(data, "bindings", path):
        vhost = _vhost(each)
        source = str(each.get("source", "")) and names.exchange(vhost, str(each["source"]))
        target = names.queue(vhost, str(each.get("destination", "")))
        key = str(each.get("routing_key", ""))
        about = f"binding {source} -> {target}, routing_key = {key}"
        if not source:  # the default exchange leads to every queue by its name
            continue
        if each.get("destination_type", "queue") != "queue":
            why = "an address does not feed another one: bind the queues themselves"
            imported.note(Verdict.NONE, 0, about, why)
        elif imported.is_name(source, 0, about):
            named = {**each, "source": source, "destination": target}
            _bind(named, kinds.get(source, "direct"), queues, about, imported)


def _bind(
    binding: Mapping[str, Any],
    kind: str,
    queues: dict[str, Fields],
    about: str,
    imported: Imported,
) -> None:
    source, target = str(binding["source"]), str(binding.get("destination", ""))
    declared = imported.addresses.setdefault(source, {})
    members = cast("dict[str, Fields]", declared.setdefault("subscriptions", {}))
    elsewhere = [
        name for name, address in imported.addresses.items()
        if name != source and target in cast("dict[str, Fields]", address.get("subscriptions", {}))
    ]  # fmt: skip
    if elsewhere:
        why = f"queue {target} belongs to address {elsewhere[0]}, and a queue has one address"
        imported.note(Verdict.NONE, 0, about, why)
        return
    if target not in members:
        if target not in queues:
            imported.note(Verdict.NONE, 0, about, "there is no such queue in the file")
            return
        members[target] = {**queues.pop(target), "shared": True}
        members[target].setdefault("selector", None)
    condition = selector_of(kind, binding)
    if condition is None:
        why = "this combination of words cannot be a selector, so the queue gets every message"
        imported.note(Verdict.NONE, 0, about, why)
        condition = ""
    _add_selector(members[target], condition)
    why = f"queue {source}::{target}" + (f", selector: {condition}" if condition else "")
    if condition:
        why += "; the producer sets the header routing_key"
    imported.note(Verdict.CHANGED, 0, about, why)


def _add_selector(fields: Fields, condition: str) -> None:
    """A queue with several bindings gets what any of them lets through."""
    have = fields["selector"]
    if have is None:
        fields["selector"] = condition
    else:
        fields["selector"] = f"({have}) OR ({condition})" if have and condition else ""


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
        for topic, queue in imported.routes.items():
            if _may_write(each, names.origins.get(queue), names):
                allow(imported, user, topic, "Write")
        if each.get("read") or each.get("configure"):
            allow_control(imported, user)
        if each.get("read"):
            allow(imported, user, topic_name("ringfaust", Role.DISPATCHED), "Read")
        why = "in acls.sh; reading and configuring are permissions for all queues"
        imported.note(Verdict.CHANGED, 0, f"permissions of {user}", why)


def _may_write(
    permission: Mapping[str, Any], origin: tuple[str, str] | None, names: _Names
) -> bool:
    """Whether it covers a queue or exchange; no origin: a topic for those of all hosts."""
    wanted = str(permission.get("write") or "")
    if origin is None:
        return wanted == ".*" and not names.is_prefixed
    vhost, name = origin
    return vhost == _vhost(permission) and (wanted == ".*" or wanted.strip("^$") == name)
