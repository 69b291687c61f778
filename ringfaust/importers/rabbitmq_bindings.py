"""Bindings of RabbitMQ's exchanges as selectors over the header `routing_key`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringfaust.core.selector import check_selector
from ringfaust.errors import BadSelector

KEY = "routing_key"
PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}
"""Types of the exchanges of every virtual host, which `export_definitions` leaves out."""

ROUTED = frozenset(PREDECLARED.values())
"""Types of exchanges whose bindings have a meaning here."""


class Conditions:
    """What a queue with several bindings gets: what any of them lets through."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._others: dict[str, None] = {}
        self._every_message = False
        self.is_incomplete = False
        """Whether a binding has no selector, so that every message is let through."""

    def add(self, kind: str, binding: Mapping[str, Any]) -> None:
        """Add a binding."""
        found = selector_of(kind, binding)
        key = str(binding.get("routing_key", ""))
        if not found:
            self._every_message = True
            self.is_incomplete |= found is None
        elif found == f"{KEY} = {_quoted(key)}":
            self._keys[_quoted(key)] = None
        else:
            self._others[found] = None

    def selector(self) -> str | None:
        """Return the selector of all bindings; None if it would be too long."""
        if self._every_message:
            return ""
        keys = [*self._keys]
        parts = [f"{KEY} = {keys[0]}"] if len(keys) == 1 else []
        if len(keys) > 1:
            parts = [f"{KEY} IN ({', '.join(keys)})"]
        parts += [f"({each})" if keys or len(self._others) > 1 else each for each in self._others]
        text = " OR ".join(parts)
        try:
            check_selector(text)
        except BadSelector:
            return None
        return text


def selector_of(kind: str, binding: Mapping[str, Any]) -> str | None:
    """Return the selector of a binding; empty: every message; None: there is none."""
    key = str(binding.get("routing_key", ""))
    if kind == "fanout":
        return ""
    if kind == "direct":
        return f"{KEY} = {_quoted(key)}"
    if kind == "topic":
        return topic_selector(key)
    if kind == "headers":
        return _headers_selector(binding.get("arguments") or {})
    return None


def matches_nothing(kind: str, binding: Mapping[str, Any]) -> bool:
    """Return whether a binding of this kind of exchange lets no message through."""
    arguments = binding.get("arguments") or {}
    return kind == "headers" and _is_any(arguments) and not _wanted(arguments)


def topic_selector(key: str) -> str | None:
    """Return the selector of a topic binding, in which `*` is one word and `#` any number.

    One `#` can be translated where there is no `*`, and any number of `*` where there is no `#`.
    """
    if key == "#":
        return ""
    words = key.split(".")
    if "#" not in words:
        return _starred(words) if "*" in words else f"{KEY} = {_quoted(key)}"
    if "*" in words or words.count("#") > 1:
        return None
    like = ".".join("%" if word == "#" else _escaped(word) for word in words)
    words.remove("#")
    several = f"{KEY} LIKE {_quoted(like)} ESCAPE '!'"
    # An empty key has no words: not even an empty one.
    return several if words == [""] else f"{KEY} = {_quoted('.'.join(words))} OR {several}"


def _starred(words: list[str]) -> str:
    dots = "%.".join([""] * (len(words) + 1))
    like = ".".join("%" if word == "*" else _escaped(word) for word in words)
    text = f"{KEY} LIKE {_quoted(like)} ESCAPE '!' AND {KEY} NOT LIKE {_quoted(dots + '%')}"
    return text if len(words) > 1 else f"{text} AND {KEY} <> ''"  # an empty key has no word


def _is_any(arguments: Mapping[str, Any]) -> bool:
    return str(arguments.get("x-match", "all")).startswith("any")


def _wanted(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """As rabbit_exchange_type_headers: names that begin with x- count only in the -with-x kinds."""
    has_x = str(arguments.get("x-match", "all")).endswith("-with-x")
    return {
        name: value
        for name, value in arguments.items()
        if name != "x-match" and (has_x or not name.startswith("x-"))
    }


def _headers_selector(arguments: Mapping[str, Any]) -> str | None:
    """Return the selector of a binding; a header without a value only has to be there."""
    wanted = _wanted(arguments)
    parts = [
        f"{_named(name)} IS NOT NULL"
        if value is None
        else f"{_named(name)} = {_quoted(str(value))}"
        for name, value in sorted(wanted.items())
    ]
    text = (" OR " if _is_any(arguments) else " AND ").join(parts)
    if not text:
        return text
    try:
        check_selector(text)
    except BadSelector:
        return None
    return (
        text if all(value is None or isinstance(value, str) for value in wanted.values()) else None
    )


def _named(name: str) -> str:
    """A header in a selector: quoted, unless it needs no quotes."""
    quoted = '"' + name.replace('"', '""') + '"'
    try:
        check_selector(f"{quoted} IS NULL")
    except BadSelector:
        return name
    return quoted


def _escaped(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
