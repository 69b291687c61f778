"""The grammar of selectors, and the closures built from it (R15).

The parser turns each part into a `Node` with a closure that evaluates it. There is no syntax tree
and no recursion, however deeply the text nests; a chain (`a AND b AND …`) is a single node.
Importing this module loads the parser library; `selector` imports it with the first selector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from ringfaust.core import limits
from ringfaust.core.selector import values
from ringfaust.core.selector.like import like
from ringfaust.errors import BadSelector

if TYPE_CHECKING:
    from ringfaust.core.model import Message

Run = Callable[["Message", Mapping[str, Any]], Any]
"""Returns the value of a part for a message and its properties."""

GRAMMAR = r"""
?start: either
?either: both (_OR both)*
?both: condition (_AND condition)*
?condition: NOT condition -> negation
    | sum
    | sum COMPARISON sum -> comparison
    | sum [NOT] _BETWEEN sum _AND sum -> between
    | sum [NOT] _IN "(" STRING ("," STRING)* ")" -> listed
    | sum [NOT] _LIKE STRING [_ESCAPE STRING] -> like
    | sum _IS [NOT] _NULL -> null
?sum: product (SIGN product)*
?product: factor (SCALE factor)*
?factor: SIGN factor -> signed
    | "(" either ")" -> bracket
    | STRING -> text
    | EXACT -> exact
    | APPROXIMATE -> approximate
    | TRUE -> truth
    | FALSE -> truth
    | NAME -> identifier
    | QUOTED -> quoted

COMPARISON: "=" | "<>" | "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
SCALE: "*" | "/"
STRING: /'(?:[^']|'')*'/
QUOTED: /"(?:[^"]|"")+"/
APPROXIMATE.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?/
    | /[0-9]+[eE][+-]?[0-9]+[fFdD]?/ | /[0-9]+[fFdD]/
EXACT: /0[xX][0-9a-fA-F]+[lL]?|[0-9]+[lL]?/
NAME: /(?:[A-Za-z_$]|[^\x00-\x7f])(?:[A-Za-z0-9_$]|[^\x00-\x7f])*/
%declare _OR _AND NOT _BETWEEN _IN _LIKE _ESCAPE _IS _NULL TRUE FALSE
%ignore /[ \t\f\r\n]+/
"""

_RESERVED = {
    "OR": "_OR", "AND": "_AND", "NOT": "NOT", "BETWEEN": "_BETWEEN", "IN": "_IN", "LIKE": "_LIKE",
    "ESCAPE": "_ESCAPE", "IS": "_IS", "NULL": "_NULL", "TRUE": "TRUE", "FALSE": "FALSE",
}  # fmt: skip


class ValueKind(StrEnum):
    """What the text alone says about the values of a part."""

    ANY = "an identifier"
    NUMBER = "a number"
    TEXT = "text"
    TRUTH = "a condition"


class Fault(NamedTuple):
    """A part that is allowed, but never true."""

    position: int
    """Of its first character, counted from 1."""
    advice: str


class Node(NamedTuple):
    """A part of a selector."""

    run: Run
    kind: ValueKind
    start: int
    """Index of its first character, counted from 0."""
    depth: int = 1
    needs_properties: bool = False
    is_name: bool = False
    fault: Fault | None = None
    """Why it is hardly what its author means."""


class _Invalid(Exception):
    """The text is invalid at `start`, counted from 0."""

    def __init__(self, start: int, advice: str) -> None:
        super().__init__(advice)
        self.start = start
        self.advice = advice


def _above(start: int, parts: Sequence[Node]) -> int:
    """Return the depth of a node made of these parts."""
    depth = 1 + max(part.depth for part in parts)
    if depth > limits.SELECTOR_DEPTH:
        advice = f"nested too deeply; at most {limits.SELECTOR_DEPTH} levels are allowed"
        raise _Invalid(start, advice)
    return depth


def _node(run: Run, kind: ValueKind, start: int, *parts: Node) -> Node:
    needs_properties = any(part.needs_properties for part in parts)
    fault = next((part.fault for part in parts if part.fault), None)
    return Node(run, kind, start, _above(start, parts), needs_properties, fault=fault)


def _start(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _literal(value: object, kind: ValueKind, token: Token) -> Node:
    return Node(lambda message, properties: value, kind, _start(token))


def _name(run: Run, start: int) -> Node:
    return Node(run, ValueKind.ANY, start, is_name=True)


def _condition(node: Node) -> Run:
    """Return the closure of a part that must be true, false or unknown."""
    if node.kind is ValueKind.TRUTH:
        return node.run
    if node.kind is not ValueKind.ANY:
        raise _Invalid(node.start, f"{node.kind} is not a condition; compare it with something")
    run, truth = node.run, values.truth
    return lambda message, properties: truth(run(message, properties))


def _operand(node: Node, use: str) -> Run:
    """Return the closure of a part that must be a number."""
    if node.kind not in (ValueKind.ANY, ValueKind.NUMBER):
        raise _Invalid(node.start, f"{use} needs numbers, but this is {node.kind}")
    return node.run


def _never_true(left: Node, sign: str, right: Node) -> Fault | None:
    """What is wrong with a comparison of different types (JMS 2.0, 3.8.1.1)."""
    if ValueKind.ANY in (left.kind, right.kind) or left.kind is right.kind:
        return None
    advice = f"{sign} is never true of {left.kind} and {right.kind}"
    if ValueKind.NUMBER in (left.kind, right.kind):
        advice += '; a property whose name has a minus or a dot is named in double quotes, "a-b"'
    return Fault(left.start + 1, advice)


def _identifier(node: Node, use: str) -> Run:
    if not node.is_name:
        raise _Invalid(node.start, f"{use} needs an identifier before it")
    return node.run


def _not(run: Run) -> Run:
    def negation(message: Message, properties: Mapping[str, Any]) -> bool | None:
        result = run(message, properties)
        return None if result is None else not result

    return negation


def _chain_of(conditions: Sequence[Run], decisive: bool) -> Run:
    """Evaluate in order: the first true value decides OR, the first false value decides AND."""

    def chain(message: Message, properties: Mapping[str, Any]) -> bool | None:
        result: bool | None = not decisive
        for condition in conditions:
            value: bool | None = condition(message, properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return chain


def _calculated(first: Run, rest: Sequence[tuple[Callable[[Any, Any], Any], Run]]) -> Run:
    def calculate(message: Message, properties: Mapping[str, Any]) -> Any:
        total = first(message, properties)
        for apply, operand in rest:
            total = apply(total, operand(message, properties))
        return total

    return calculate


_HEADERS: dict[str, Callable[[Message], object]] = {
    "JMSPriority": lambda message: message.priority,
    "JMSTimestamp": lambda message: message.enqueued_ms,
    "JMSMessageID": lambda message: message.id,
    "JMSXGroupID": lambda message: message.group or None,
    "JMSXDeliveryCount": lambda message: message.attempts + 1,
    "JMSExpiration": lambda message: message.expires_at_ms,
    "JMSRedelivered": lambda message: message.handovers > 0,
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.persistent else "NON_PERSISTENT",
}


def _property(name: str, start: int) -> Node:
    node = _name(lambda message, properties: properties.get(name), start)
    return node._replace(needs_properties=True)


class _Builder(Transformer[Token, Node]):
    """Makes a node of each part. Its methods are named after the rules of the grammar."""

    def either(self, parts: list[Node]) -> Node:
        run = _chain_of([_condition(part) for part in parts], decisive=True)
        return _node(run, ValueKind.TRUTH, parts[0].start, *parts)

    def both(self, parts: list[Node]) -> Node:
        run = _chain_of([_condition(part) for part in parts], decisive=False)
        return _node(run, ValueKind.TRUTH, parts[0].start, *parts)

    def negation(self, parts: tuple[Token, Node]) -> Node:
        token, part = parts
        return _node(_not(_condition(part)), ValueKind.TRUTH, _start(token), part)

    def comparison(self, parts: tuple[Node, Token, Node]) -> Node:
        left, sign, right = parts
        if sign in ("=", "<>"):
            first, second = left.run, right.run
        else:
            first, second = _operand(left, sign), _operand(right, sign)
        compare = values.COMPARISONS[sign]

        def run(message: Message, properties: Mapping[str, Any]) -> bool | None:
            return compare(first(message, properties), second(message, properties))

        node = _node(run, ValueKind.TRUTH, left.start, left, right)
        return node._replace(fault=node.fault or _never_true(left, sign, right))

    def between(self, parts: tuple[Node, Token | None, Node, Node]) -> Node:
        part, negated, low, high = parts
        value, least, greatest = (_operand(node, "BETWEEN") for node in (part, low, high))
        at_least, at_most = values.COMPARISONS[">="], values.COMPARISONS["<="]

        def run(message: Message, properties: Mapping[str, Any]) -> bool | None:
            number = value(message, properties)
            above = at_least(number, least(message, properties))
            below = at_most(number, greatest(message, properties))
            if above is False or below is False:
                return False
            return None if above is None or below is None else True

        return _node(_not(run) if negated else run, ValueKind.TRUTH, part.start, part, low, high)

    def listed(self, parts: Sequence[Any]) -> Node:
        part, negated, *tokens = parts
        names = frozenset(map(_unquoted, tokens))
        return self._of_text(part, negated, "IN", names.__contains__)

    def like(self, parts: tuple[Node, Token | None, Token, Token | None]) -> Node:
        part, negated, pattern, escape = parts
        char = _unquoted(escape) if escape is not None else ""
        if escape is not None and len(char) != 1:
            raise _Invalid(_start(escape), "ESCAPE needs exactly one character")
        try:
            holds = like(_unquoted(pattern), char)
        except ValueError:
            advice = f"the pattern ends with its escape character {char}"
            raise _Invalid(_start(pattern), advice) from None
        return self._of_text(part, negated, "LIKE", holds)

    def _of_text(
        self, part: Node, negated: Token | None, use: str, holds: Callable[[str], bool]
    ) -> Node:
        value = _identifier(part, use)

        def run(message: Message, properties: Mapping[str, Any]) -> bool | None:
            found = value(message, properties)
            return None if found is None else values.is_text(found) and holds(found)

        return _node(_not(run) if negated else run, ValueKind.TRUTH, part.start, part)

    def null(self, parts: tuple[Node, Token | None]) -> Node:
        part, negated = parts
        value = _identifier(part, "IS NULL")

        def run(message: Message, properties: Mapping[str, Any]) -> bool:
            return value(message, properties) is None

        return _node(_not(run) if negated else run, ValueKind.TRUTH, part.start, part)

    def sum(self, parts: Sequence[Any]) -> Node:
        nodes, signs = parts[::2], parts[1::2]
        first = _operand(nodes[0], signs[0])
        rest = [
            (values.CALCULATIONS[sign], _operand(node, sign))
            for sign, node in zip(signs, nodes[1:], strict=True)
        ]
        return _node(_calculated(first, rest), ValueKind.NUMBER, nodes[0].start, *nodes)

    product = sum

    def signed(self, parts: tuple[Token, Node]) -> Node:
        sign, part = parts
        calculate, operand = values.CALCULATIONS[sign], _operand(part, sign)

        def run(message: Message, properties: Mapping[str, Any]) -> int | float | None:
            return calculate(0, operand(message, properties))

        return _node(run, ValueKind.NUMBER, _start(sign), part)

    def bracket(self, parts: list[Node]) -> Node:
        (part,) = parts
        return part._replace(depth=_above(part.start, parts))

    def text(self, tokens: list[Token]) -> Node:
        return _literal(_unquoted(tokens[0]), ValueKind.TEXT, tokens[0])

    def truth(self, tokens: list[Token]) -> Node:
        return _literal(tokens[0].type == "TRUE", ValueKind.TRUTH, tokens[0])

    def exact(self, tokens: list[Token]) -> Node:
        (token,) = tokens
        digits = token.rstrip("lL")
        base = 16 if digits[1:2] in ("x", "X") else 8 if digits[0] == "0" else 10
        try:
            value = int(digits, base)
        except ValueError:
            advice = "a number that starts with 0 is octal, as in Java; remove the leading 0"
            raise _Invalid(_start(token), advice) from None
        # One more than the greatest is allowed, so that the least can be written with a minus.
        if value > values.GREATEST + 1:
            advice = f"an exact number is at most {values.GREATEST}; write a greater one like 1E30"
            raise _Invalid(_start(token), advice)
        return _literal(value, ValueKind.NUMBER, token)

    def approximate(self, tokens: list[Token]) -> Node:
        (token,) = tokens
        value = float(token.rstrip("fFdD"))
        if not math.isfinite(value):
            raise _Invalid(_start(token), "an approximate number is at most 1.7E308")
        return _literal(value, ValueKind.NUMBER, token)

    def identifier(self, tokens: list[Token]) -> Node:
        name, start = str(tokens[0]), _start(tokens[0])
        if not name.replace("$", "_").isidentifier():
            raise _Invalid(
                start,
                "an identifier consists of letters, digits, _ and $, and starts with no digit",
            )
        header = _HEADERS.get(name)
        if header is not None:
            return _name(lambda message, properties: header(message), start)
        return _property(name, start)

    def quoted(self, tokens: list[Token]) -> Node:
        """A property with any name, as in SQL-92. Without need it is a mistake: text has others."""
        name, start = tokens[0][1:-1].replace('""', '"'), _start(tokens[0])
        is_plain = name.replace("$", "_").isidentifier() and name.upper() not in _RESERVED
        if is_plain and name not in _HEADERS:
            raise _Invalid(start, f"text needs single quotes, and the name {name} needs none")
        return _property(name, start)


def parse(text: str) -> Node:
    """Parse a condition, ready to evaluate.

    Raises:
        BadSelector: the text is not a valid condition.
    """
    try:
        node = cast(Node, _parser().parse(text))
        return node._replace(run=_condition(node))
    except _Invalid as error:
        raise BadSelector(text, error.start + 1, error.advice) from None
    except UnexpectedCharacters as error:
        advice = _CHARACTERS.get(error.char, "this character is allowed only within quotes")
        raise BadSelector(text, (error.pos_in_stream or 0) + 1, advice) from None
    except UnexpectedToken as error:
        raise BadSelector(text, *_misplaced(error, len(text))) from None


@cache
def _parser() -> Lark:
    callbacks = {"NAME": _reserved}
    return Lark(
        GRAMMAR, parser="lalr", lexer="basic", lexer_callbacks=callbacks, transformer=_Builder()
    )


def _reserved(name: Token) -> Token:
    """Reserved words are ASCII, in upper or lower case; they are not names."""
    word = _RESERVED.get(name.upper()) if name.isascii() else None
    return name if word is None else name.update(type=word)


_CHARACTERS = {
    "'": "the text has no closing quote; write a quote within text twice",
    '"': "the name has no closing quote, or is empty; text needs single quotes",
    "!": "write <> for not equal",
    "%": "the arithmetic operators are + - * /",
}

_WORDS = {
    "NAME": "an identifier", "QUOTED": "a quoted identifier", "STRING": "text",
    "EXACT": "a number", "APPROXIMATE": "a number",
    "LPAR": "(", "RPAR": ")", "COMMA": ",", "COMPARISON": "a comparison", "SIGN": "+ or -",
    "SCALE": "* or /", "$END": "the end",
}  # fmt: skip


_WORD_CHARS = 40
"""How much of a long word an error repeats."""


def _misplaced(error: UnexpectedToken, length: int) -> tuple[int, str]:
    """Return the position, counted from 1, and advice."""
    token = error.token
    if token.type == "$END":
        position, found = length + 1, "it ends too early"
    elif token.type == "_NULL":
        return _start(token) + 1, "test for null with IS NULL or IS NOT NULL"
    else:
        position, found = _start(token) + 1, f"{token[:_WORD_CHARS]} is not allowed here"
    wanted = sorted({_WORDS.get(name, name.lstrip("_")) for name in error.accepts})
    return position, f"{found}; expected: {', '.join(wanted)}"
