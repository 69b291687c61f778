"""Filters of Artemis, and the selectors that they become."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FIELDS = {
    "AMQPriority": "JMSPriority", "AMQTimestamp": "JMSTimestamp", "AMQExpiration": "JMSExpiration",
    "AMQDurable": "JMSDeliveryMode", "AMQUserID": "JMSMessageID", "AMQGroupID": "JMSXGroupID",
}  # fmt: skip
"""Fields of a message in filters of Artemis, and their names in a selector.

Artemis has these names of JMS in selectors of consumers alone.
"""
_MODES = {"'DURABLE'": "'PERSISTENT'", "'NON_DURABLE'": "'NON_PERSISTENT'"}
"""What `AMQDurable` is compared with, and what its equivalent is."""
_PREFIX = "AMQ"
_ANNOTATION = "m."
"""How the name of a message annotation of AMQP begins, which no selector sees."""
_PARTS = re.compile(
    r"""--[^\r\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")+"|[A-Za-z_$][\w$]*|\.?\d[\w.]*|<>|<=|>=|.""",
    re.DOTALL,
)
_WORDS = frozenset(("AND", "BETWEEN", "IN", "IS", "LIKE", "NOT", "NULL", "OR"))
_COMPARISONS = frozenset(("=", "<>"))
_OPERATORS = frozenset((*_COMPARISONS, "<", "<=", ">", ">=", "+", "-", "*", "/", "BETWEEN"))
_BEFORE_OPERAND = _OPERATORS | {"(", "AND", "OR"}
_UNARY = frozenset(("NOT", "+", "-"))


class UnknownField(Exception):
    """The filter needs a field of Artemis that no selector has; the text is its name."""


def translated(text: str) -> str:
    """The selector of a filter.

    Raises:
        UnknownField: it names a field that has no equivalent.
    """
    parts = [" " if part.startswith(("--", "/*")) else part for part in _PARTS.findall(text)]
    return "".join(_translated(_enclosed(parts))).strip()


def _enclosed(parts: list[str]) -> list[str]:
    """Put NOT and its operand in parentheses where JMS would read it otherwise.

    In Artemis it binds like a minus: `NOT a = 'x'` is `(NOT a) = 'x'` (HyphenatedParser.jj,
    unaryExpr); in JMS it is `NOT (a = 'x')`.
    """
    places = [place for place, part in enumerate(parts) if not part.isspace()]
    words = [parts[place].upper() for place in places]
    closing = _closing(words)
    enclosed = [*parts]
    for index, word in enumerate(words):
        before = words[index - 1] if index else "("
        if word != "NOT" or before not in _BEFORE_OPERAND:
            continue
        last = index
        while last + 1 < len(words) and words[last] in _UNARY:
            last += 1
        last = closing.get(last, last)
        after = words[last + 1] if last + 1 < len(words) else ")"
        if before in _OPERATORS or after not in (")", "AND", "OR"):
            enclosed[places[index]] = "(" + enclosed[places[index]]
            enclosed[places[last]] += ")"
    return _PARTS.findall("".join(enclosed))


def _closing(words: list[str]) -> dict[int, int]:
    """The place of each closing parenthesis by that of its opening one."""
    opened, found = [], {}
    for index, word in enumerate(words):
        if word == "(":
            opened.append(index)
        elif word == ")" and opened:
            found[opened.pop()] = index
    return found


def _translated(parts: list[str]) -> Iterator[str]:
    compared = ""
    """The field that a literal is compared with: the last one, or the one behind it."""
    for place, part in enumerate(parts):
        if part[0] == '"' and len(part) > 1:
            compared = part[1:-1].replace('""', '"')
            if compared.startswith(_ANNOTATION):
                raise UnknownField(f"{part}, an annotation of AMQP,")
            named = _named(compared)
            yield named if named != compared else part
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
    if name in _FIELDS.values():
        raise UnknownField(f"{name}, which Artemis finds in no message,")
    return _FIELDS.get(name, name)


def _right_operand(parts: list[str]) -> str:
    """The field that follows a comparison; empty if none does."""
    rest = [part for part in parts if not part.isspace() and part != "("]
    return rest[1] if len(rest) > 1 and rest[0] in _COMPARISONS else ""
