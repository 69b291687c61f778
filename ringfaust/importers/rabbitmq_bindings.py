"""Bindings of RabbitMQ's exchanges as selectors over the header `routing_key`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEY = "routing_key"


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


def topic_selector(key: str) -> str | None:
    """Return the selector of a topic binding, in which `*` is one word and `#` any number.

    `#` can be translated at the end, alone or behind a dot, and `*` anywhere.
    """
    if key == "#":
        return ""
    words = key.split(".")
    rest = words[-1] == "#"
    if rest:
        words = words[:-1]
    if "#" in words:
        return None
    if "*" not in words:
        exact = f"{KEY} = {_quoted('.'.join(words))}"
        return f"{exact} OR {_like('.'.join(words), '.%')}" if rest else exact
    if rest:
        return None
    dots = "%.".join([""] * (len(words) + 1))
    like = ".".join("%" if word == "*" else _escaped(word) for word in words)
    return f"{KEY} LIKE {_quoted(like)} ESCAPE '!' AND {KEY} NOT LIKE {_quoted(dots + '%')}"


def _headers_selector(arguments: Mapping[str, Any]) -> str | None:
    wanted = {name: value for name, value in arguments.items() if not name.startswith("x-")}
    if not wanted or not all(
        name.isidentifier() and isinstance(value, str) for name, value in wanted.items()
    ):
        return None
    parts = [f"{name} = {_quoted(value)}" for name, value in sorted(wanted.items())]
    return (" OR " if str(arguments.get("x-match", "all")).startswith("any") else " AND ").join(
        parts
    )


def _like(text: str, after: str) -> str:
    return f"{KEY} LIKE {_quoted(_escaped(text) + after)} ESCAPE '!'"


def _escaped(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
