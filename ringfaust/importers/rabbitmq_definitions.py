"""The definitions of RabbitMQ as a file: its sections and their entries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringfaust.importers.imported import CannotImport, refuse_large

SHOWN = 80
"""How much of a name a line shows."""
KNOWN = {
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
VERSIONS = ("rabbit_version", "rabbitmq_version")
_NEWEST = 4
"""The newest version of RabbitMQ whose defaults are known here."""


class Definitions:
    """What a file of definitions says."""

    def __init__(self, path: Path, data: Mapping[str, Any]) -> None:
        self.path = path
        self.data = data
        self._entries: dict[str, list[dict[str, Any]]] = {}

    @property
    def version(self) -> int:
        """The first number of RabbitMQ's version; 4 if the file does not say it."""
        text = str(next(filter(None, map(self.data.get, VERSIONS)), ""))
        first = text.partition(".")[0]
        return int(first) if first.isdecimal() and len(first) < 4 else _NEWEST

    def entries(self, section: str) -> list[dict[str, Any]]:
        """Return what a section lists.

        Raises:
            CannotImport: it is not a list of objects.
        """
        if section not in self._entries:
            self._entries[section] = self._checked(section)
        return self._entries[section]

    def _checked(self, section: str) -> list[dict[str, Any]]:
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


def read_definitions(path: Path) -> Definitions:
    """Read a file.

    Raises:
        CannotImport: it is too large, not JSON, or not RabbitMQ's definitions.
    """
    refuse_large(path)
    try:
        data = json.loads(path.read_bytes())
        json.dumps(data, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise CannotImport(path, error.lineno, f"not JSON: {error.msg}") from None
    except UnicodeError:
        raise CannotImport(path, 0, "not JSON: it is not UTF-8") from None
    except ValueError:
        raise CannotImport(path, 0, "has a number of more than 4300 digits") from None
    except RecursionError:
        raise CannotImport(path, 0, "nests too deeply") from None
    if not isinstance(data, dict) or not data.keys() & KNOWN.keys():
        text = 'is not RabbitMQ\'s definitions, which are {"queues": […], "exchanges": […], …}'
        raise CannotImport(path, 1, text)
    return Definitions(path, data)
