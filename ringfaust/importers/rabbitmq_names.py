"""Sections of RabbitMQ's definitions, and what their queues and exchanges are called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringfaust.importers.rabbitmq_definitions import Definitions

_NAMED = ("queues", "exchanges", "bindings")
"""The sections whose names belong to a virtual host."""


class Names:
    """What queues and exchanges are called here.

    In RabbitMQ a name is unique only within its virtual host, and among queues or exchanges.
    """

    def __init__(self, given: Definitions) -> None:
        named = (each for part in _NAMED for each in given.entries(part))
        self.is_prefixed = len({vhost_of(each) for each in named}) > 1
        """Whether the names of virtual hosts other than / come first."""
        self._queues = _Unique()
        self._exchanges = _Unique()
        queues = [(vhost_of(each), str(each.get("name", ""))) for each in given.entries("queues")]
        for queue in sorted(queues, key=lambda queue: queue[0] != "/"):  # those keep their names
            self.queue(*queue)
        bound = {
            (vhost_of(each), str(each.get("destination", "")))
            for each in given.entries("bindings")
            if each.get("source")
        }
        self._exchanges.taken |= {self.queue(*queue) for queue in queues if queue not in bound}
        for part, field in (("exchanges", "name"), ("bindings", "source")):
            found = [(vhost_of(each), str(each.get(field, ""))) for each in given.entries(part)]
            for exchange in sorted(found, key=lambda exchange: exchange[0] != "/"):
                self.exchange(*exchange)
        self.origins: dict[str, tuple[str, str]] = {}
        """By name of a queue or exchange here: its virtual host, and its name there."""

    def queue(self, vhost: str, name: str) -> str:
        """The name of a queue; with several virtual hosts, theirs come first."""
        return self._queues.of(vhost, name, self._prefixed(vhost, name), "-2")

    def exchange(self, vhost: str, name: str) -> str:
        """The name of an exchange, which differs from those of the queues that it does not feed."""
        return self._exchanges.of(vhost, name, self._prefixed(vhost, name), "-exchange")

    def _prefixed(self, vhost: str, name: str) -> str:
        return f"{vhost}.{name}" if self.is_prefixed and vhost != "/" else name


class _Unique:
    """Names here, each of which one name of one virtual host has."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self.taken: set[str] = set()

    def of(self, vhost: str, name: str, wanted: str, ending: str) -> str:
        """The name of `name`. `ending`: what follows the wanted one if another has it."""
        if (vhost, name) not in self._names:
            here = wanted
            while here in self.taken:
                here += ending
            self._names[vhost, name] = here
            self.taken.add(here)
        return self._names[vhost, name]


def vhost_of(entry: Mapping[str, Any]) -> str:
    """The virtual host that an entry belongs to."""
    return str(entry.get("vhost", "/"))
