"""Avro values, decoded only after a walk through their bytes has found that they are small.

A body may claim more items than it has bytes: 2^40 nulls take six. And it may nest as deep as it
has bytes, which fastavro's C code follows on the stack until the process dies.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

MOST_VALUES = 100_000
"""Values of a body, with those that contain others. Those without bytes count, too."""
MOST_DEPTH = 200
"""How deep they may nest."""
_NUMBER_BYTES = 10
"""Of the longest number, seven bits in each."""
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def read_avro(schema: Any, named: Mapping[str, Any], body: bytes) -> Any:
    """Decode a body.

    Args:
        schema: as fastavro has parsed it.
        named: the types that it refers to, by name.
        body: one value.

    Raises:
        ValueError: the body does not fit the schema, or is beyond a limit.
    """
    from fastavro import schemaless_reader  # noqa: PLC0415 - an extra

    _Walk(named, body).value(schema, 0)
    return schemaless_reader(io.BytesIO(body), schema, None)


def zigzag(body: bytes, at: int) -> tuple[int, int]:
    """Read a whole number as Avro and Protobuf write signed ones.

    Returns:
        The number, and where it ends.

    Raises:
        ValueError: there is none.
    """
    value = 0
    for shift, byte in enumerate(body[at : at + _NUMBER_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + shift + 1
    raise ValueError("the value ends within a number")


class _Walk:
    """Passes over the values of a body. Every method raises ValueError where they end too early."""

    def __init__(self, named: Mapping[str, Any], body: bytes) -> None:
        self._named = named
        self._body = body
        self._at = 0
        self._left = MOST_VALUES

    def value(self, schema: Any, depth: int) -> None:
        """Pass over a value."""
        self._left -= 1
        if self._left < 0 or depth > MOST_DEPTH:
            raise ValueError("the value has too many parts, or they nest too deep")
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, list):
            self.value(schema[self._whole(len(schema) - 1)], depth + 1)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str):
            self.value(kind, depth + 1)
        elif kind in ("record", "error"):
            for field in schema["fields"]:
                self.value(field["type"], depth + 1)
        elif kind == "array":
            self._items(lambda: self.value(schema["items"], depth + 1))
        elif kind == "map":
            self._items(lambda: self._pair(schema["values"], depth + 1))
        elif kind in ("bytes", "string"):
            self._text()
        elif kind in ("int", "long", "enum"):
            self._number()
        else:
            self._skip(schema["size"] if kind == "fixed" else _SIZES[kind])

    def _items(self, one: Callable[[], object]) -> None:
        while count := self._number():
            if count < 0:
                self._number()  # the bytes of the block
            if abs(count) > self._left:
                raise ValueError(f"the value claims {abs(count)} items")
            for _ in range(abs(count)):
                one()

    def _pair(self, schema: Any, depth: int) -> None:
        self._text()
        self.value(schema, depth)

    def _text(self) -> None:
        self._skip(self._whole(len(self._body)))

    def _whole(self, most: int) -> int:
        number = self._number()
        if not 0 <= number <= most:
            raise ValueError(f"{number} is not from 0 to {most}")
        return number

    def _number(self) -> int:
        number, self._at = zigzag(self._body, self._at)
        return number

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._body):
            raise ValueError("the value ends too early")
