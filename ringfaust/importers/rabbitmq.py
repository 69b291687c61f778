"""`definitions.json` of RabbitMQ: queues, policies, exchanges with their bindings, permissions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ringfaust.core.address import SEPARATOR
from ringfaust.importers.imported import Fields, Imported, Verdict
from ringfaust.importers.rabbitmq_bindings import PREDECLARED, ROUTED, Conditions
from ringfaust.importers.rabbitmq_definitions import (
    KNOWN,
    SHOWN,
    VERSIONS,
    Definitions,
    read_definitions,
)
from ringfaust.importers.rabbitmq_names import Names, vhost_of
from ringfaust.importers.rabbitmq_permissions import read_permissions
from ringfaust.importers.rabbitmq_policies import Policies
from ringfaust.importers.rabbitmq_queues import (
    note_types,
    queue_fields,
    queue_type,
    read_settings,
    set_attempts,
    set_types,
)

_FIELDS = {
    "tags": "Kafka's ACLs say what a user may do", "limits": "Kafka has quotas",
    "metadata": "it describes the virtual host; queues have no types here",
    "default_queue_type": "the type of queues that say none; types only differ in what is imported",
    "tracing": "the topics hold what happened", "description": "about the file itself",
}  # fmt: skip
_NO_SELECTOR = {
    "topic": "this combination of words cannot be a selector",
    "headers": "only headers that are texts can be compared in a selector",
}


def import_rabbitmq(path: Path) -> Imported:
    """Read the definitions that `rabbitmqctl export_definitions` writes.

    Raises:
        CannotImport: the file is too large, not JSON, or not RabbitMQ's definitions.
    """
    imported = Imported(path)
    with imported.kept_when_refused():
        _import(read_definitions(path), imported)
    return imported


def _import(given: Definitions, imported: Imported) -> None:
    set_types(given.entries("queues"), given.entries("vhosts"))
    parameters = given.entries("parameters")
    policies = Policies(given.entries("policies"), parameters, given.path)
    names = Names(given)
    _note_others(given, imported)
    note_types(given.entries("queues"), imported)
    fields = _queues(given, policies, imported, names)
    _exchanges(given, fields, imported, names)
    imported.queues.update(fields)
    _note_queues(given, imported, names)
    hosts = {vhost_of(each) for each in given.entries("queues")} or {"/"}
    for pattern, merged in policies.for_later_queues(hosts, names.origins, imported).items():
        imported.settings[pattern] = read_settings(merged, imported)
    _note_vhosts(given, imported, names)
    imported.add_routes()
    read_permissions(given, imported, names)


def _note_others(given: Definitions, imported: Imported) -> None:
    """Give a line to each section, entry and field that nothing here reads."""
    why = "a setting of the broker or a plugin"
    for section in sorted(given.data.keys() - {*KNOWN, *VERSIONS}):
        content = given.data[section]
        for each in content if isinstance(content, list) else [content]:
            name = str(each.get("name", "")) if isinstance(each, dict) else str(each)
            imported.note(Verdict.NONE, 0, f"{section} {name}"[:SHOWN].strip(), why)
    for section in sorted(given.data.keys() & set(VERSIONS)):
        about = f"{section} = {given.data[section]}"[:SHOWN]
        imported.note(Verdict.TAKEN, 0, about, f"the defaults of RabbitMQ {given.version}")
    for section, known in KNOWN.items():
        for each in given.entries(section):
            owner = str(each.get("name") or each.get("user") or each.get("source") or "")
            if section == "parameters" and each.get("component") != "operator_policy":
                about = f"parameter {each.get('component')} {owner}"
                imported.note(Verdict.NONE, 0, about[:SHOWN], why)
            for key in sorted(key for key in each.keys() - known if each[key]):
                about = f"{section}, {owner[:SHOWN]}, {key} = {each[key]}"[: 2 * SHOWN]
                other = _FIELDS.get(key, "not a setting that is known here")
                imported.note(Verdict.NONE, 0, about, other)


def _note_vhosts(given: Definitions, imported: Imported, names: Names) -> None:
    hosts = {vhost_of(each) for each in given.entries("queues")}
    for each in given.entries("vhosts"):
        name = str(each.get("name", ""))
        verdict, why = Verdict.TAKEN, "the names of its queues and exchanges stay as they are"
        if name not in hosts:
            verdict, why = Verdict.NONE, "there are no virtual hosts, and it has no queues"
        elif names.is_prefixed and name != "/":
            verdict, why = Verdict.CHANGED, f"its queues and exchanges are called {name[:SHOWN]}.…"
        imported.note(verdict, 0, f"vhost {name[:SHOWN]}", why)


def _queues(
    given: Definitions, policies: Policies, imported: Imported, names: Names
) -> dict[str, Fields]:
    """Return the fields of each queue by name."""
    found: dict[str, Fields] = {}
    version, noted = given.version, set[str]()
    for each in given.entries("queues"):
        vhost, name = vhost_of(each), str(each.get("name", ""))
        about = f"queue {name[:SHOWN]}"
        ours = names.queue(vhost, name)
        if ours != name:
            why = f"called {ours}: there are no virtual hosts, and applications have own names"
            imported.note(Verdict.CHANGED, 0, f"{about}, vhost = {vhost}", why)
        if imported.is_name(ours, 0, about, patterns=False):
            names.origins[ours] = vhost, name
            policy = policies.of(vhost, name, ours, queue_type(each), imported)
            found[ours] = queue_fields(each, ours, policy, imported)
            set_attempts(each, found[ours], version, noted, imported)
    return found


def _note_queues(given: Definitions, imported: Imported, names: Names) -> None:
    """Say what each queue is called, which depends on the exchange that feeds it."""
    addresses = {
        member: address
        for address, fields in imported.addresses.items()
        for member in cast("dict[str, Fields]", fields["subscriptions"])
    }
    for each in given.entries("queues"):
        name = str(each.get("name", ""))
        ours, about = names.queue(vhost_of(each), name), f"queue {name[:SHOWN]}"
        if ours in addresses:
            full = f"{addresses[ours]}{SEPARATOR}{ours}"
            why = f"queue {full}; a record in the topic messages that names it reaches it alone"
            imported.note(Verdict.CHANGED, 0, about, why)
        elif ours in imported.queues:
            imported.note(Verdict.TAKEN, 0, about, f"queue {ours}")


def _exchanges(
    given: Definitions, queues: dict[str, Fields], imported: Imported,
    names: Names,
) -> None:  # fmt: skip
    """Turn each exchange that queues are bound to into an address with these queues."""
    kinds: dict[str, str] = {}
    for each in given.entries("exchanges"):
        name, kind = str(each.get("name", "")), str(each.get("type", ""))
        arguments = each.get("arguments") or {}
        if kind == "x-delayed-message":
            kind = str(arguments.get("x-delayed-type", "direct"))
            why = "the producer sets ringfaust-delay-ms instead of x-delay"
            imported.note(Verdict.CHANGED, 0, f"exchange {name}, type x-delayed-message", why)
        ours = names.exchange(vhost_of(each), name)
        names.origins.setdefault(ours, (vhost_of(each), name))
        kinds[ours] = kind
        _note_attributes(each, f"exchange {name[:SHOWN]}", arguments, imported)
    conditions: dict[str, Conditions] = {}
    for each in given.entries("bindings"):
        vhost, exchange = vhost_of(each), str(each.get("source", ""))
        source = exchange and names.exchange(vhost, exchange)
        target = names.queue(vhost, str(each.get("destination", "")))
        key = str(each.get("routing_key", ""))
        about = f"binding {source} -> {target}, routing_key = {key}"
        known = kinds.get(source) or PREDECLARED.get(exchange)
        if not source and target in names.origins and target == key:
            why = f"what is sent to the topic of queue {target} reaches it"
            imported.note(Verdict.TAKEN, 0, about, why)
        elif not source:
            why = "the default exchange leads to each queue of the file by its name, and no other"
            imported.note(Verdict.NONE, 0, about, why)
        elif each.get("destination_type", "queue") != "queue":
            why = "an address does not feed another one: bind the queues themselves"
            imported.note(Verdict.NONE, 0, about, why)
        elif known is None:
            why = f"the file does not declare the exchange {exchange[:SHOWN]}, so its type is open"
            imported.note(Verdict.NONE, 0, about, why)
        elif imported.is_name(source, 0, about, patterns=False):
            names.origins.setdefault(source, (vhost, exchange))
            if members := _members(source, target, queues, about, imported):
                fields, found = members[target], conditions.setdefault(target, Conditions())
                ours = f"queue {source}::{target}"
                _bind(fields, found, known, each, ours=ours, about=about, imported=imported)
    for each in given.entries("exchanges"):
        _note_exchange(each, imported, names)


def _note_exchange(exchange: Mapping[str, Any], imported: Imported, names: Names) -> None:
    vhost, name = vhost_of(exchange), str(exchange.get("name", ""))
    ours, about = names.exchange(vhost, name), f"exchange {name[:SHOWN]}"
    if ours not in imported.addresses:
        why = "no queue of the file is bound to it; declare an address if programs bind their own"
        imported.note(Verdict.NONE, 0, about, why)
    elif ours != name:
        why = f"address {ours}: an exchange here has a name that no queue and no other one has"
        imported.note(Verdict.CHANGED, 0, about, why)
    elif exchange.get("type") not in (*ROUTED, "x-delayed-message"):
        why = f"address {ours}: each of its queues gets every message, for its type is not known"
        imported.note(Verdict.CHANGED, 0, f"{about}, type {exchange.get('type')}"[:SHOWN], why)
    else:
        imported.note(Verdict.TAKEN, 0, about, f"address {ours}")


def _note_attributes(
    exchange: Mapping[str, Any], about: str, arguments: Mapping[str, Any], imported: Imported
) -> None:
    """Give a line to each attribute and argument of an exchange that changes something."""
    if exchange.get("auto_delete"):
        why = "the address stays when its last queue leaves"
        imported.note(Verdict.NONE, 0, f"{about}, auto_delete", why)
    if exchange.get("durable") is False:
        why = "the address survives a restart"
        imported.note(Verdict.CHANGED, 0, f"{about}, durable = false", why)
    if exchange.get("internal"):
        why = "ACLs say who may write to its topic: give nobody that right"
        imported.note(Verdict.NONE, 0, f"{about}, internal", why)
    for key, value in arguments.items():
        why = "not a setting that is known here"
        if key == "alternate-exchange":
            why = "a message that no queue accepts is reported as the event `unrouted`"
        if key != "x-delayed-type":
            imported.note(Verdict.NONE, 0, f"{about}, {key} = {value}"[: 2 * SHOWN], why)


def _members(
    source: str, target: str, queues: dict[str, Fields], about: str, imported: Imported
) -> dict[str, Fields] | None:
    """Return the subscriptions of an address, with this one; None if it cannot have it."""
    for name, address in imported.addresses.items():
        if name != source and target in cast("dict[str, Fields]", address.get("subscriptions", {})):
            why = f"queue {target} belongs to address {name}, and a queue has one address"
            imported.note(Verdict.NONE, 0, about, why)
            return None
    declared = imported.addresses.get(source, {"subscriptions": {}})
    members = cast("dict[str, Fields]", declared["subscriptions"])
    if target not in members:
        if target not in queues:
            imported.note(Verdict.NONE, 0, about, "there is no such queue in the file")
            return None
        members[target] = {**queues.pop(target), "shared": True}
    imported.addresses[source] = declared
    return members


def _bind(
    fields: Fields, conditions: Conditions, kind: str, binding: Mapping[str, Any], *, ours: str,
    about: str, imported: Imported,
) -> None:  # fmt: skip
    condition = conditions.add(kind, binding)
    selector = conditions.selector()
    fields["selector"] = selector or ""
    if condition is None or selector is None:
        why = "the selector of all its bindings is too long"
        if condition is None:
            why = _NO_SELECTOR.get(
                kind, f"no selector does what an exchange of type {kind[:SHOWN]} does"
            )
        imported.note(Verdict.NONE, 0, about, f"{why}, so the queue gets every message")
        return
    sets = "the headers it names" if kind == "headers" else "the header routing_key"
    said = f"{ours}, selector: {condition}; the producer sets {sets}"
    imported.note(Verdict.CHANGED, 0, about, said if condition else ours)
