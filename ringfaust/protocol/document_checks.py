"""What must hold of the content of a `queues.yaml`, whether it comes from a file or is applied.

A file is also checked by `config.queues`, which knows the types. What is applied has to satisfy
both: a worker that starts reads it as it reads a file (R128).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ringfaust.core import limits
from ringfaust.core.address import SEPARATOR, beyond_room, queue_name
from ringfaust.core.catalog import SUBSCRIPTIONS, Catalog, beyond_patterns, catalog_of
from ringfaust.core.patterns import Pattern, is_pattern
from ringfaust.errors import BadSetting, suggestion
from ringfaust.protocol.route_checks import (
    CheckedRoute,
    faults_together,
    shown,
    template_fault,
    topic_fault,
)

_TABLES = ("queues", "addresses", "settings")


class DocumentFault(NamedTuple):
    """What is wrong with the content of a `queues.yaml`."""

    path: tuple[str | int, ...]
    """Where, such as `("routes", 0, "queue")`. Empty: with all of it."""
    text: str

    def __str__(self) -> str:
        """It, for people."""
        where = ".".join(map(str, self.path))
        return f"{where}: {self.text}" if where else self.text


def document_faults(
    document: Mapping[str, Any], own_topics: Collection[str], partitions: int
) -> list[str]:
    """What is wrong with a document that is to be applied: with its parts, or else together.

    Args:
        document: of the right types.
        own_topics: the topics of the application.
        partitions: of these.
    """
    if found := [*_route_faults(document), *_name_faults(document)]:
        return [*map(str, found)]
    routes = [CheckedRoute(**each) for each in document.get("routes", ())]
    together = faults_together(routes, own_topics, partitions)
    texts = [f"{each.field}: {each.text}" for each in together]
    texts += map(str, faults_among(document))
    try:
        catalog_of(document)
    except BadSetting as error:
        texts.append(str(error))
    return texts


def name_fault(name: str) -> str:
    """What is wrong with the name or pattern of a queue or address; empty: nothing."""
    if not name or len(name) > limits.NAME_CHARS or "\0" in name:
        return f"a queue's name has 1 to {limits.NAME_CHARS} characters and no NUL"
    for word in name.split("."):
        if len(word) > 1 and ("*" in word or "#" in word):
            return (
                f"{shown(word)} mixes a wildcard with text: * and # match whole words between "
                "dots, as in departures.*"
            )
    if SEPARATOR in name:
        return (
            f"{shown(name)} is a queue of an address: declare it as addresses."
            f"{name.replace(SEPARATOR, '.subscriptions.', 1)}"
        )
    return ""


def subscription_fault(name: str) -> str:
    """What is wrong with the name of a subscription; empty: nothing."""
    if not name or SEPARATOR in name or is_pattern(name):
        return (
            f"{shown(name)} is not a valid name for a subscription: it must not be empty, contain "
            ":: or be a pattern"
        )
    return name_fault(name)


def faults_among(document: Mapping[str, Any]) -> Iterator[DocumentFault]:
    """What is wrong between routes, queues and addresses, each of which is right by itself."""
    queues, addresses = document.get("queues", {}), document.get("addresses", {})
    routes = [CheckedRoute(**each) for each in document.get("routes", ())]
    seen: set[str] = set()
    for index, route in enumerate(routes):
        if route.topic in seen:
            text = f"topic {route.topic!r} has two routes, but a record goes to one queue: "
            yield DocumentFault(("routes", index, "topic"), f"{text}remove one of them")
        seen.add(route.topic)
    for name in queues:
        if name in addresses:
            text = "is also an address, so a send would be ambiguous: rename one"
            yield DocumentFault(("queues", name), text)
    for name, fields in addresses.items():
        yield from _faults_of_address(name, fields)
    patterns = sum(is_pattern(name) for table in _TABLES for name in document.get(table, {}))
    if text := beyond_patterns(patterns):
        yield DocumentFault((), text)
    declared = [*queues, *addresses]
    catalog, compiled = Catalog({name: {} for name in declared}, {}), [*map(Pattern, declared)]
    for index, route in enumerate(routes):
        if not route.may_lead_to(catalog, compiled):
            known = suggestion(route.queue, declared) if declared else "both are empty"
            yield DocumentFault(
                ("routes", index, "queue"),
                f"{shown(route.queue)} is not declared in `queues` or `addresses`; {known}",
            )


def _faults_of_address(name: str, fields: Mapping[str, Any]) -> Iterator[DocumentFault]:
    subscriptions = fields.get(SUBSCRIPTIONS, {})
    where = ("addresses", name, SUBSCRIPTIONS)
    names = [queue_name(name, each) for each in subscriptions]
    if fields.get("routing") == "anycast" and len(names) > 1:
        yield DocumentFault(where, "an anycast address has one queue; use multicast for several")
    for each, full in zip(subscriptions, names, strict=True):
        if len(full) > limits.NAME_CHARS:
            yield DocumentFault(
                (*where, each),
                f"{shown(full)} is too long: a queue's name, with its address and ::, has at most "
                f"{limits.NAME_CHARS} characters",
            )
    if most := beyond_room(names):
        text = f"{len(names):,} subscriptions; an address takes at most {most}"
        yield DocumentFault(where, text)


def _route_faults(document: Mapping[str, Any]) -> Iterator[DocumentFault]:
    for index, each in enumerate(document.get("routes", ())):
        if text := topic_fault(each["topic"]):
            yield DocumentFault(("routes", index, "topic"), text)
        if text := template_fault(each["queue"]):
            yield DocumentFault(("routes", index, "queue"), text)


def _name_faults(document: Mapping[str, Any]) -> Iterator[DocumentFault]:
    for table in _TABLES:
        for name in document.get(table, {}):
            if text := name_fault(name):
                yield DocumentFault((table, name), text)
    for name, fields in document.get("addresses", {}).items():
        for each in fields.get(SUBSCRIPTIONS, {}):
            if text := subscription_fault(each):
                yield DocumentFault(("addresses", name, SUBSCRIPTIONS, each), text)
