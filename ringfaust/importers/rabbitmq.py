"""`definitions.json` of RabbitMQ: queues, policies, exchanges with their bindings, permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from ringfaust.core.address import SEPARATOR
from ringfaust.importers.imported import CannotImport, Fields, Imported, Verdict, read_file
from ringfaust.importers.rabbitmq_exchanges import Exchanges
from ringfaust.importers.rabbitmq_names import SHOWN, Definitions, Names, name_of, vhost_of
from ringfaust.importers.rabbitmq_permissions import read_permissions
from ringfaust.importers.rabbitmq_policies import Policies, Settings
from ringfaust.importers.rabbitmq_queues import (
    applied_settings,
    note_types,
    queue_fields,
    queue_type,
    read_settings,
    set_attempts,
    set_types,
    why_not_imported,
)

_KNOWN = {
    "queues": {"name", "vhost", "durable", "auto_delete", "arguments", "type"},
    "exchanges": {"name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"},
    "bindings": {"source", "vhost", "destination", "destination_type", "routing_key", "arguments",
                 "properties_key"},
    "policies": {"name", "vhost", "pattern", "apply-to", "priority", "definition"},
    "parameters": {"component", "name", "vhost", "value"},
    "permissions": {"user", "vhost", "configure", "write", "read"},
    "topic_permissions": {"user", "vhost", "exchange", "write", "read"},
    "users": {"name", "password_hash", "password", "hashing_algorithm"},
    "vhosts": {"name"},
}  # fmt: skip
"""Sections of the file, and the fields of an entry that have a line of their own or need none."""
_FIELDS = {
    "tags": "Kafka's ACLs say what a user may do", "limits": "Kafka has quotas",
    "metadata": "it describes the virtual host; queues have no types here",
    "default_queue_type": "the type of queues that say none; types only differ in what is imported",
    "tracing": "the topics hold what happened", "description": "about the file itself",
}  # fmt: skip
_PARAMETERS = {
    "shovel": "it moved messages: a program has to do that",
    "federation-upstream": "it brought messages of another broker: a program has to do that",
    "vhost-limits": "Kafka has quotas",
}
_VERSIONS = ("rabbit_version", "rabbitmq_version")


def import_rabbitmq(path: Path) -> Imported:
    """Read the definitions that `rabbitmqctl export_definitions` writes.

    Raises:
        CannotImport: the file is too large, not JSON, or not RabbitMQ's definitions.
    """
    imported = Imported(path)
    with imported.kept_when_refused():
        _import(_read(path), imported)
    return imported


def _import(definitions: Definitions, imported: Imported) -> None:
    set_types(definitions.entries("queues"), definitions.entries("vhosts"))
    policies = Policies(
        definitions.entries("policies"), definitions.entries("parameters"), definitions.path,
        definitions.version,
    )  # fmt: skip
    names = Names(definitions)
    _note_others(definitions, imported)
    queues = _Queues(definitions, names, policies, imported)
    fields = queues.read()
    exchanges = Exchanges(definitions, names, fields, imported)
    exchanges.read()
    imported.queues.update(fields)
    queues.note_names()
    imported.note_dead_letters(_dead_letter_targets(queues.dead_letters, names, exchanges))
    hosts = {vhost_of(each) for each in definitions.entries("queues")} or {"/"}
    for pattern, given in policies.for_later_queues(hosts, names.origins, imported).items():
        imported.settings[pattern] = read_settings(given, imported)
    _note_vhosts(definitions, names, imported)
    imported.add_routes()
    read_permissions(definitions, names, imported)


def _read(path: Path) -> Definitions:
    try:
        data = json.loads(read_file(path))
        json.dumps(data, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise CannotImport(path, error.lineno, f"not JSON: {error.msg}") from None
    except UnicodeError:
        raise CannotImport(path, 0, "not JSON: it is not UTF-8") from None
    except ValueError:
        raise CannotImport(path, 0, "has a number of more than 4300 digits") from None
    except RecursionError:
        raise CannotImport(path, 0, "nests too deeply") from None
    if not isinstance(data, dict) or not data.keys() & _KNOWN.keys():
        text = 'is not RabbitMQ\'s definitions, which are {"queues": […], "exchanges": […], …}'
        raise CannotImport(path, 1, text)
    return Definitions(data, path)


def _note_others(definitions: Definitions, imported: Imported) -> None:
    """Give a line to each section, entry and field that nothing here reads."""
    why = "a setting of the broker or a plugin"
    data = definitions.data
    for section in sorted(data.keys() - {*_KNOWN, *_VERSIONS}):
        content = data[section]
        for each in content if isinstance(content, list) else [content]:
            name = str(each.get("name", "")) if isinstance(each, dict) else str(each)
            imported.note(Verdict.NONE, 0, f"{section} {name}"[:SHOWN].strip(), why)
    for section in sorted(data.keys() & set(_VERSIONS)):
        about = f"{section} = {data[section]}"[:SHOWN]
        imported.note(Verdict.TAKEN, 0, about, f"the defaults of RabbitMQ {definitions.version}")
    for section, known in _KNOWN.items():
        for each in definitions.entries(section):
            owner = str(each.get("name") or each.get("user") or each.get("source") or "")
            if section == "parameters" and each.get("component") != "operator_policy":
                component = str(each.get("component"))
                about, other = f"parameter {component} {owner}", _PARAMETERS.get(component, why)
                imported.note(Verdict.NONE, 0, about[:SHOWN], other)
            for key in sorted(key for key in each.keys() - known if each[key]):
                about = f"{section}, {owner[:SHOWN]}, {key} = {each[key]}"[: 2 * SHOWN]
                other = _FIELDS.get(key, "not a setting that is known here")
                imported.note(Verdict.NONE, 0, about, other)


def _note_vhosts(definitions: Definitions, names: Names, imported: Imported) -> None:
    hosts = {vhost_of(each) for each in definitions.entries("queues")}
    for each in definitions.entries("vhosts"):
        name = str(each.get("name", ""))
        verdict, why = Verdict.TAKEN, "the names of its queues and exchanges stay as they are"
        if name not in hosts:
            verdict, why = Verdict.NONE, "there are no virtual hosts, and it has no queues"
        elif names.is_prefixed and name != "/":
            verdict, why = Verdict.CHANGED, f"its queues and exchanges are called {name[:SHOWN]}.…"
        imported.note(verdict, 0, f"vhost {name[:SHOWN]}", why)


class _Queues:
    """The queues of the file."""

    def __init__(
        self, definitions: Definitions, names: Names, policies: Policies, imported: Imported
    ) -> None:
        self._queues = definitions.first("queues", imported)
        self._version = definitions.version
        self._names, self._policies, self._imported = names, policies, imported
        self.dead_letters: list[tuple[str, Settings]] = []
        """Virtual host and settings of each queue with a dead letter exchange."""
        self._typed: set[str] = set()
        """The types of queue that have the line about delivery limits."""

    def read(self) -> dict[str, Fields]:
        """Return the fields of each queue by name."""
        found: dict[str, Fields] = {}
        note_types(self._queues, self._version, self._imported)
        for each in self._queues:
            vhost, name = name_of(each)
            about = f"queue {name[:SHOWN]}"
            ours = self._names.queue(vhost, name)
            if ours != name:
                why = f"called {ours}: there are no virtual hosts, and applications have own names"
                self._imported.note(Verdict.CHANGED, 0, f"{about}, vhost = {vhost}", why)
            if self._imported.is_name(ours, 0, about, patterns=False):
                policy = self._policies.of(vhost, name, ours, queue_type(each), self._imported)
                given = applied_settings(each, ours, policy, self._imported)
                if why := why_not_imported(each):
                    self._leave_out(about, given, why)
                    continue
                self._names.queues[ours] = vhost, name
                if "dead-letter-exchange" in given:
                    self.dead_letters.append((vhost, given))
                found[ours] = queue_fields(each, ours, given, self._imported)
                set_attempts(each, found[ours], self._version, self._typed, self._imported)
        return found

    def _leave_out(self, about: str, given: Settings, why: str) -> None:
        self._imported.note(Verdict.NONE, 0, about, why)
        for key, setting in given.items():
            self._imported.note(Verdict.NONE, 0, setting.about(key), f"{about} is not imported")

    def note_names(self) -> None:
        """Say what each queue is called, which depends on the exchange that feeds it."""
        addresses = {
            member: address
            for address, fields in self._imported.addresses.items()
            for member in cast("dict[str, Fields]", fields["subscriptions"])
        }
        for ours, (_, name) in self._names.queues.items():
            about = f"queue {name[:SHOWN]}"
            if ours in addresses:
                full = f"{addresses[ours]}{SEPARATOR}{ours}"
                why = f"queue {full}; a record in the topic messages that names it reaches it alone"
                self._imported.note(Verdict.CHANGED, 0, about, why)
            else:
                self._imported.note(Verdict.TAKEN, 0, about, f"queue {ours}")


def _dead_letter_targets(
    dead_letters: list[tuple[str, Settings]], names: Names, exchanges: Exchanges
) -> Iterator[str]:
    """Yield the addresses and queues that dead letters may have reached."""
    for vhost, given in dead_letters:
        exchange = str(given["dead-letter-exchange"].value)
        key = given.get("dead-letter-routing-key")
        if exchange:
            yield from exchanges.reached(names.exchange(vhost, exchange), key and key.value)
        elif key:
            yield names.queue(vhost, str(key.value))
