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
        queues = entries(data, "queues", path)
        named = (each for part in _NAMED for each in entries(data, part, path))
        self._is_prefixed = len({vhost_of(each) for each in named}) > 1
        bound = {
            (vhost_of(each), str(each.get("destination", "")))
            for each in entries(data, "bindings", path)
            if each.get("source")
        }
        own = {(vhost_of(each), str(each.get("name", ""))) for each in queues} - bound
        self._queues = {self.queue(vhost, name) for vhost, name in own}
        """The queues that no exchange feeds."""
        self.origins: dict[str, tuple[str, str]] = {}
        """By name of a queue or exchange here: its virtual host, and its name there."""

    def queue(self, vhost: str, name: str) -> str:
        """The name of a queue; with several virtual hosts, theirs come first."""
        return f"{vhost}.{name}" if self._is_prefixed and vhost != "/" else name

    def exchange(self, vhost: str, name: str) -> str:
        """The name of an exchange, which differs from those of the queues that it does not feed."""
        here = self.queue(vhost, name)
        while here in self._queues:
            here += "-exchange"
        return here


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
