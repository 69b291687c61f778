"""Sections of RabbitMQ's definitions, and what their queues and exchanges are called here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringfaust.importers.imported import CannotImport

SHOWN = 80
"""How much of a name a line shows."""
_NAMED = ("queues", "exchanges", "bindings")
"""The sections whose names belong to a virtual host."""


class Names:
    """What queues and exchanges are called here.

    In RabbitMQ a name is unique only within its virtual host, and among queues or exchanges.
    """

    def __init__(self, data: Mapping[str, Any], path: Path) -> None:
        named = (each for part in _NAMED for each in entries(data, part, path))
        self.is_prefixed = len({vhost_of(each) for each in named}) > 1
        """Whether the names of virtual hosts other than / come first."""
        self._queues = _Unique()
        self._exchanges = _Unique()
        queues = [
            (vhost_of(each), str(each.get("name", ""))) for each in entries(data, "queues", path)
        ]
        for queue in sorted(queues, key=lambda queue: queue[0] != "/"):  # those keep their names
            self.queue(*queue)
        bound = {
            (vhost_of(each), str(each.get("destination", "")))
            for each in entries(data, "bindings", path)
            if each.get("source")
        }
        self._exchanges.taken |= {self.queue(*queue) for queue in queues if queue not in bound}
        for part, field in (("exchanges", "name"), ("bindings", "source")):
            found = [
                (vhost_of(each), str(each.get(field, ""))) for each in entries(data, part, path)
            ]
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


def entries(data: Mapping[str, Any], section: str, path: Path) -> list[dict[str, Any]]:
    """Return what a section lists.

    Raises:
        CannotImport: it is not a list of objects.
    """
    found = data.get(section) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise CannotImport(path, 0, f"{section} is not a list of objects")
    for each in found:
        for part in ("arguments", "definition"):
            if each.get(part) and not isinstance(each[part], dict):
                name = str(each.get("name"))[:SHOWN]
                raise CannotImport(path, 0, f"{section}, {name!r}: {part} is not an object")
    return found
