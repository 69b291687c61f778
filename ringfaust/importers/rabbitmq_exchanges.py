"""Exchanges of RabbitMQ's definitions and their bindings, and the addresses that they become."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ringfaust.importers.imported import Fields, Imported, Verdict
from ringfaust.importers.rabbitmq_bindings import (
    PREDECLARED,
    ROUTED,
    Conditions,
    matches_nothing,
    selector_of,
)
from ringfaust.importers.rabbitmq_names import SHOWN, Definitions, Name, Names, name_of, vhost_of

_NO_SELECTOR = {
    "topic": "this combination of words cannot be a selector",
    "headers": "only headers that are texts can be compared in a selector",
}


@dataclass(frozen=True, slots=True)
class _Binding:
    """A binding of the file, in the names of here."""

    source: str
    """Empty: the default exchange."""
    target: str
    key: str
    kind: str | None
    """Type of the exchange; None: not known."""
    entry: Mapping[str, Any]

    @property
    def about(self) -> str:
        return f"binding {self.source} -> {self.target}, routing_key = {self.key}"


class Exchanges:
    """Each exchange that queues are bound to becomes an address with these queues."""

    def __init__(
        self, definitions: Definitions, names: Names, queues: dict[str, Fields], imported: Imported
    ) -> None:
        """`queues`: fields by name; those that are bound are taken out."""
        self._definitions, self._names = definitions, names
        self._queues, self._imported = queues, imported
        self._all_queues = {name_of(each) for each in definitions.entries("queues")}
        self._exchanges = definitions.first("exchanges", imported)
        self._kinds: dict[str, str] = {}
        """Types of the exchanges of the file."""
        self._conditions: defaultdict[str, Conditions] = defaultdict(Conditions)
        self._selectors: dict[str, str | None] = {}
        """By queue, what it gets of its exchange; None: it would be too long."""
        self._sources: dict[str, str] = {}
        """By queue, the address that it belongs to."""
        self._bound: list[_Binding] = []

    def read(self) -> None:
        """Read exchanges and bindings; each gets its line."""
        for each in self._exchanges:
            self._declare(each)
        for each in self._definitions.entries("bindings"):
            self._bind(self._binding(each), name_of(each, "destination"))
        self._selectors = {name: each.selector() for name, each in self._conditions.items()}
        for target, source in self._sources.items():
            self._members(source)[target]["selector"] = self._selectors[target] or ""
        for bound in self._bound:
            self._note_bound(bound)
        for each in self._exchanges:
            self._note(each)

    def reached(self, exchange: str, key: object) -> set[str]:
        """Return the address of an exchange, and its queues that a routing key may lead to.

        Args:
            exchange: its name here.
            key: text; otherwise, not known.
        """
        found = {
            each.target
            for each in self._bound
            if each.source == exchange
            and (each.kind != "direct" or not isinstance(key, str) or each.key == key)
        }
        return {exchange, *found}

    def _declare(self, exchange: Mapping[str, Any]) -> None:
        name, kind = str(exchange.get("name", "")), str(exchange.get("type", ""))
        arguments = exchange.get("arguments") or {}
        if kind == "x-delayed-message":
            kind = str(arguments.get("x-delayed-type", "direct"))
            why = "the producer sets ringfaust-delay-ms instead of x-delay"
            about = f"exchange {name[:SHOWN]}, type x-delayed-message"
            self._imported.note(Verdict.CHANGED, 0, about, why)
        ours = self._names.exchange(*name_of(exchange))
        self._names.exchanges.setdefault(ours, name_of(exchange))
        self._kinds[ours] = kind
        _note_attributes(exchange, f"exchange {name[:SHOWN]}", arguments, self._imported)

    def _binding(self, entry: Mapping[str, Any]) -> _Binding:
        exchange = str(entry.get("source", ""))
        source = exchange and self._names.exchange(*name_of(entry, "source"))
        target = self._names.queue(*name_of(entry, "destination"))
        kind = self._kinds.get(source) or PREDECLARED.get(exchange)
        return _Binding(source, target, str(entry.get("routing_key", "")), kind, entry)

    def _bind(self, binding: _Binding, destination: Name) -> None:
        names, about = self._names, binding.about
        is_left_out = destination in self._all_queues and binding.target not in names.queues
        if binding.entry.get("destination_type", "queue") == "queue" and is_left_out:
            self._none(about, f"queue {binding.target[:SHOWN]} is not imported")
        elif (
            not binding.source and binding.target in names.queues and binding.target == binding.key
        ):
            why = f"what is sent to the topic of queue {binding.target} reaches it"
            self._imported.note(Verdict.TAKEN, 0, about, why)
        elif not binding.source:
            self._none(
                about, "the default exchange leads to each queue of the file by its name, no other"
            )
        elif binding.entry.get("destination_type", "queue") != "queue":
            self._none(about, "an address does not feed another one: bind the queues themselves")
        elif binding.kind is None:
            exchange = str(binding.entry["source"])[:SHOWN]
            self._none(
                about, f"the file does not declare the exchange {exchange}, so its type is open"
            )
        elif matches_nothing(binding.kind, binding.entry):
            why = "no message matches it, as in RabbitMQ: it is left out"
            self._imported.note(Verdict.TAKEN, 0, about, why)
        elif self._imported.is_name(binding.source, 0, about, patterns=False):
            names.exchanges.setdefault(binding.source, name_of(binding.entry, "source"))
            if self._is_member(binding):
                self._conditions[binding.target].add(binding.kind, binding.entry)
                self._bound.append(binding)

    def _members(self, address: str) -> dict[str, Fields]:
        """The subscriptions of an address, which is declared."""
        declared = self._imported.addresses.setdefault(address, {})
        return cast("dict[str, Fields]", declared.setdefault("subscriptions", {}))

    def _is_member(self, binding: _Binding) -> bool:
        """Make the queue one of the exchange's address; return whether it can be."""
        target, source = binding.target, self._sources.get(binding.target, binding.source)
        if source != binding.source:
            why = f"queue {target} belongs to address {source}, and a queue has one address"
            self._none(binding.about, why)
        elif target in self._queues:
            self._members(source)[target] = {**self._queues.pop(target), "shared": True}
            self._sources[target] = source
        elif target not in self._sources:
            self._none(binding.about, "there is no such queue in the file")
        return self._sources.get(target) == binding.source

    def _note_bound(self, binding: _Binding) -> None:
        """Say what became of a binding, now that the others of its queue are known."""
        kind, about = str(binding.kind), binding.about
        conditions = self._conditions[binding.target]
        condition = selector_of(kind, binding.entry)
        every = "so the queue gets every message"
        ours = f"queue {binding.source}::{binding.target}"
        if condition is None:
            other = f"no selector does what an exchange of type {kind[:SHOWN]} does"
            self._none(about, f"{_NO_SELECTOR.get(kind, other)}, {every}")
        elif self._selectors[binding.target] is None:
            self._none(about, f"the selector of all its bindings is too long, {every}")
        elif conditions.is_incomplete:
            why = f"{ours}; another binding has no selector, {every}"
            self._imported.note(Verdict.CHANGED, 0, about, why)
        else:
            sets = "the headers it names" if kind == "headers" else "the header routing_key"
            said = f"{ours}, selector: {condition}; the producer sets {sets}"
            self._imported.note(Verdict.CHANGED, 0, about, said if condition else ours)

    def _note(self, exchange: Mapping[str, Any]) -> None:
        name, kind = str(exchange.get("name", "")), exchange.get("type")
        ours, about = self._names.exchange(vhost_of(exchange), name), f"exchange {name[:SHOWN]}"
        if ours not in self._imported.addresses:
            self._none(
                about, "it feeds no queue here; declare an address if programs bind their own"
            )
        elif ours != name:
            why = f"address {ours}: an exchange here has a name that no queue and no other one has"
            self._imported.note(Verdict.CHANGED, 0, about, why)
        elif kind not in (*ROUTED, "x-delayed-message"):
            why = (
                f"address {ours}: each of its queues gets every message, for its type is not known"
            )
            self._imported.note(Verdict.CHANGED, 0, f"{about}, type {kind}"[:SHOWN], why)
        else:
            self._imported.note(Verdict.TAKEN, 0, about, f"address {ours}")

    def _none(self, about: str, why: str) -> None:
        self._imported.note(Verdict.NONE, 0, about, why)


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
