"""RabbitMQ's definitions, and what their queues and exchanges are called here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringfaust.importers.imported import CannotImport, Imported, Verdict

SHOWN = 80
"""How much of a name a line shows."""
NEWEST = 4
"""The newest version of RabbitMQ whose defaults are known here."""
_NAMED = ("queues", "exchanges", "bindings")
"""The sections whose names belong to a virtual host."""

Name = tuple[str, str]
"""Of a queue or exchange there: its virtual host, and its name in it."""


class Definitions:
    """The file."""

    def __init__(self, data: Mapping[str, Any], path: Path) -> None:
        self.data, self.path = data, path

    @property
    def version(self) -> int:
        """The first number of RabbitMQ's version; 4 if the file does not say it."""
        text = str(self.data.get("rabbit_version") or self.data.get("rabbitmq_version") or "")
        first = text.partition(".")[0]
        return int(first) if first.isdecimal() and len(first) < 4 else NEWEST

    def entries(self, section: str) -> list[dict[str, Any]]:
        """Return what a section lists.

        Raises:
            CannotImport: it is not a list of objects.
        """
        found = self.data.get(section) or []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise CannotImport(self.path, 0, f"{section} is not a list of objects")
        for each in found:
            for part in ("arguments", "definition"):
                if each.get(part) and not isinstance(each[part], dict):
                    name = str(each.get("name"))[:SHOWN]
                    raise CannotImport(
                        self.path, 0, f"{section}, {name!r}: {part} is not an object"
                    )
        return found

    def first(self, section: str, imported: Imported | None = None) -> list[dict[str, Any]]:
        """Return the queues or exchanges, of those of one name the first.

        RabbitMQ leaves as it is what exists (rabbit_definitions, `add_queue_int`).

        Args:
            section: `queues` or `exchanges`.
            imported: where each further one gets its line.
        """
        found: dict[Name, dict[str, Any]] = {}
        for each in self.entries(section):
            if name_of(each) not in found:
                found[name_of(each)] = each
            elif imported:
                about = f"{section.removesuffix('s')} {str(each.get('name', ''))[:SHOWN]}"
                why = "named a second time: RabbitMQ keeps the first"
                imported.note(Verdict.NONE, 0, about, why)
        return [*found.values()]


class Names:
    """What queues and exchanges are called here.

    In RabbitMQ a name is unique only within its virtual host, and among queues or exchanges.
    """

    def __init__(self, definitions: Definitions) -> None:
        named = (each for part in _NAMED for each in definitions.entries(part))
        self.is_prefixed = len({vhost_of(each) for each in named}) > 1
        """Whether the names of virtual hosts other than / come first."""
        self._queues = _Unique()
        self._exchanges = _Unique()
        queues = [name_of(each) for each in definitions.entries("queues")]
        for queue in sorted(queues, key=lambda queue: queue[0] != "/"):  # those keep their names
            self.queue(*queue)
        bound = {
            name_of(each, "destination")
            for each in definitions.entries("bindings")
            if each.get("source")
        }
        self._exchanges.taken |= {self.queue(*queue) for queue in queues if queue not in bound}
        for part, field in (("exchanges", "name"), ("bindings", "source")):
            found = [name_of(each, field) for each in definitions.entries(part)]
            for exchange in sorted(found, key=lambda exchange: exchange[0] != "/"):
                self.exchange(*exchange)
        self.queues: dict[str, Name] = {}
        """The queues that are imported, by their names here."""
        self.exchanges: dict[str, Name] = {}
        """The exchanges, likewise; some have the name of a queue that they feed."""

    @property
    def origins(self) -> dict[str, Name]:
        """The queues that are imported and the exchanges, by their names here."""
        return self.queues | {n: o for n, o in self.exchanges.items() if n not in self.queues}

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
        self._names: dict[Name, str] = {}
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


def name_of(entry: Mapping[str, Any], field: str = "name") -> Name:
    """The virtual host of an entry, and what it names."""
    return vhost_of(entry), str(entry.get(field, ""))
