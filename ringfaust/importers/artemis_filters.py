"""Filters of Artemis, and the selectors that they become."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FIELDS = {
    "AMQPriority": "JMSPriority", "AMQTimestamp": "JMSTimestamp", "AMQExpiration": "JMSExpiration",
    "AMQDurable": "JMSDeliveryMode", "AMQUserID": "JMSMessageID", "AMQGroupID": "JMSXGroupID",
}  # fmt: skip
"""Fields of a message in filters of Artemis, and their names in a selector."""
_MODES = {"'DURABLE'": "'PERSISTENT'", "'NON_DURABLE'": "'NON_PERSISTENT'"}
"""What `AMQDurable` is compared with, and what its equivalent is."""
_PREFIX = "AMQ"
_PARTS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")+"|[A-Za-z_$][\w$]*|<>|<=|>=|.""", re.DOTALL)
_WORDS = frozenset(("AND", "BETWEEN", "IN", "IS", "LIKE", "NOT", "NULL", "OR"))
_COMPARISONS = frozenset(("=", "<>"))


class UnknownField(Exception):
    """The filter needs a field of Artemis that no selector has; the text is its name."""


def translated(text: str) -> str:
    """The selector of a filter.

    Raises:
        UnknownField: it names a field that has no equivalent.
    """
    parts = _PARTS.findall(text)
    return "".join(_translated(parts))


def _translated(parts: list[str]) -> Iterator[str]:
    compared = ""
    """The field that a literal is compared with: the last one, or the one behind it."""
    for place, part in enumerate(parts):
        if part[0] == '"' and len(part) > 1:
            raise UnknownField(f"{part}, a quoted name,")  # Artemis refuses such a filter
        elif part in _MODES:
            of = _right_operand(parts[place + 1 :]) or compared
            yield _MODES[part] if of == "AMQDurable" else part
        elif part[0].isalpha() or part[0] in "_$":
            is_word = part.upper() in _WORDS
            compared = ("" if part.upper() in ("AND", "OR") else compared) if is_word else part
            if part.upper() == "LIKE" and compared == "AMQDurable":
                raise UnknownField("AMQDurable LIKE")
            yield _named(part)
        else:
            yield part


def _named(name: str) -> str:
    if name.startswith(_PREFIX) and name not in _FIELDS:
        raise UnknownField(name)
    return _FIELDS.get(name, name)


def _right_operand(parts: list[str]) -> str:
    """The field that follows a comparison; empty if none does."""
    rest = [part for part in parts if not part.isspace() and part != "("]
    return rest[1] if len(rest) > 1 and rest[0] in _COMPARISONS else ""
