"""Validates records with the schemas in docs/contracts/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

CONTRACTS = Path(__file__).parents[2] / "docs" / "contracts"


def schema(name: str) -> dict[str, Any]:
    """A checked-in schema: control, replies or events."""
    return dict(json.loads((CONTRACTS / f"{name}.schema.json").read_text("utf-8")))


class Validating:
    """Validates values with one schema. Values of the same shape are validated once."""

    def __init__(self, name: str) -> None:
        self._validator = Draft202012Validator(schema(name))
        self._shapes: set[object] = set()
        self.count = 0

    def __call__(self, value: Any) -> None:
        self.count += 1
        shape = _shape(value)
        if shape not in self._shapes:
            problems = [error.message[:300] for error in self._validator.iter_errors(value)]
            assert not problems, (value, problems)
            self._shapes.add(shape)


_WORDS = ("type", "event", "reason", "what", "state", "ack_mode", "cause")


def _shape(value: Any) -> object:
    if isinstance(value, dict):
        return frozenset(
            (name, each if name in _WORDS and isinstance(each, str) else _shape(each))
            for name, each in value.items()
        )
    if isinstance(value, list):
        return frozenset(map(_shape, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return "negative" if value < 0 else "zero" if value == 0 else "positive"
    return type(value)
