"""The grammar of selectors, and the closures built from it (R15).

The parser turns each part into a `Node` with a closure that evaluates it. There is no recursion,
however deeply the text nests; a chain (`a AND b AND …`) is a single node.
Importing this module loads the parser library; `selector` imports it with the first selector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from ringfaust.core import limits
from ringfaust.core.selector import nodes, possible, values
from ringfaust.core.selector.like import like, like_cost
from ringfaust.core.selector.nodes import Invalid, Node, Run, ValueKind
from ringfaust.core.selector.possible import Possible
from ringfaust.errors import BadSelector

if TYPE_CHECKING:
    from ringfaust.core.model import Message

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


def _start(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _calculated(first: Run, rest: Sequence[tuple[Callable[[Any, Any], Any], Run]]) -> Run:
    def calculate(message: Message, properties: Mapping[str, Any]) -> Any:
        total = first(message, properties)
        for apply, operand in rest:
            total = apply(total, operand(message, properties))
        return total

    return calculate


_Header = tuple[Callable[["Message"], object], Possible]
_HEADERS: dict[str, _Header] = {
    "JMSPriority": (lambda message: message.priority, Possible((0, 9))),
    "JMSTimestamp": (lambda message: message.enqueued_ms, possible.ANY_NUMBER),
    "JMSMessageID": (lambda message: message.id, possible.ANY_TEXT),
    "JMSXGroupID": (
        lambda message: message.group or None, possible.ANY_TEXT._replace(may_be_null=True)
    ),
    "JMSXDeliveryCount": (lambda message: message.attempts + 1, Possible((1, math.inf))),
    "JMSExpiration": (lambda message: message.expires_at_ms, possible.ANY_NUMBER),
    "JMSRedelivered": (lambda message: message.handovers > 0, possible.ANY_TRUTH),
    "JMSDeliveryMode": (
        lambda message: "PERSISTENT" if message.persistent else "NON_PERSISTENT",
        Possible(texts=frozenset(("PERSISTENT", "NON_PERSISTENT"))),
    ),
}  # fmt: skip
"""The fields of a message that a selector names, and what values each may have."""


def _property(name: str, start: int) -> Node:
    return Node(
        lambda message, properties: properties.get(name), ValueKind.ANY, start, possible.ANY,
        needs_properties=True, is_name=True,
    )  # fmt: skip


def _searched(run: Run) -> Run:
    """What LIKE searches: text that is too long for it is null (R122)."""

    def read(message: Message, properties: Mapping[str, Any]) -> Any:
        found = run(message, properties)
        return None if isinstance(found, str) and len(found) > limits.LIKE_CHARS else found

    return read


class _Builder(Transformer[Token, Node]):
    """Makes a node of each part. Its methods are named after the rules of the grammar."""

    def either(self, parts: list[Node]) -> Node:
        return nodes.chain(parts, decisive=True)

    def both(self, parts: list[Node]) -> Node:
        return nodes.chain(parts, decisive=False)

    def negation(self, parts: tuple[Token, Node]) -> Node:
        token, part = parts
        return nodes.negation(part, _start(token))

    def comparison(self, parts: tuple[Node, Token, Node]) -> Node:
        left, sign, right = parts
        if sign in ("=", "<>"):
            first, second = left.run, right.run
        else:
            first, second = nodes.operand(left, sign), nodes.operand(right, sign)
        compare = values.COMPARISONS[sign]

        def run(message: Message, properties: Mapping[str, Any]) -> bool | None:
            return compare(first(message, properties), second(message, properties))

        may = possible.compared(left.possible, sign, right.possible)
        advice = f"{sign} is never true of {left.possible} and {right.possible}"
        node = nodes.truth(run, left.start, [left, right], may, advice)
        return node._replace(mismatch=node.mismatch or nodes.mismatch(left, sign, right))

    def between(self, parts: tuple[Node, Token | None, Node, Node]) -> Node:
        part, negated, low, high = parts
        of = (part, low, high)
        value, least, greatest = (nodes.operand(node, "BETWEEN") for node in of)
        at_least, at_most = values.COMPARISONS[">="], values.COMPARISONS["<="]

        def run(message: Message, properties: Mapping[str, Any]) -> bool | None:
            number = value(message, properties)
            above = at_least(number, least(message, properties))
            below = at_most(number, greatest(message, properties))
            if above is False or below is False:
                return False
            return None if above is None or below is None else True

        may = possible.between(*(node.possible for node in of))
        said = f"BETWEEN {low.possible} AND {high.possible} is never true of {part.possible}"
        if not possible.may_be_in_order(low.possible, high.possible):
            said += "; the lower bound comes first"
        return _negated(nodes.truth(run, part.start, of, may, said), negated, said)

    def listed(self, parts: Sequence[Any]) -> Node:
        part, negated, *tokens = parts
        names = frozenset(map(_unquoted, tokens))
        return self._of_text(part, negated, "IN", names.__contains__)

    def like(self, parts: tuple[Node, Token | None, Token, Token | None]) -> Node:
        part, negated, pattern, escape = parts
        char = _unquoted(escape) if escape is not None else ""
        if escape is not None and len(char) != 1:
            raise Invalid(_start(escape), "ESCAPE needs exactly one character")
        try:
            holds = like(_unquoted(pattern), char)
            cost = like_cost(_unquoted(pattern), char)
        except ValueError:
            advice = f"the pattern ends with its escape character {char}"
            raise Invalid(_start(pattern), advice) from None
        part = part._replace(run=_searched(part.run))
        node = self._of_text(part, negated, "LIKE", holds)
        return node._replace(likes=((part.run, cost),))

    def _of_text(
        self, part: Node, negated: Token | None, use: str, holds: Callable[[str], bool]
    ) -> Node:
        value = nodes.identifier(part, use)

        def run(message: Message, properties: Mapping[str, Any]) -> bool | None:
            found = value(message, properties)
            return None if found is None else values.is_text(found) and holds(found)

        may, said = possible.tested(part.possible, holds), f"{use} is never true of {part.possible}"
        return _negated(nodes.truth(run, part.start, [part], may, said), negated, said)

    def null(self, parts: tuple[Node, Token | None]) -> Node:
        part, negated = parts
        value = nodes.identifier(part, "IS NULL")

        def run(message: Message, properties: Mapping[str, Any]) -> bool:
            return value(message, properties) is None

        may, said = possible.is_null(part.possible), f"IS NULL is never true of {part.possible}"
        return _negated(nodes.truth(run, part.start, [part], may, said), negated, said)

    def sum(self, parts: Sequence[Any]) -> Node:
        terms, signs = parts[::2], parts[1::2]
        first = nodes.operand(terms[0], signs[0])
        rest = [
            (values.CALCULATIONS[sign], nodes.operand(node, sign))
            for sign, node in zip(signs, terms[1:], strict=True)
        ]
        may = possible.calculated(terms[0].possible, signs, [node.possible for node in terms[1:]])
        return nodes.calculation(_calculated(first, rest), terms[0].start, terms, may)

    product = sum

    def signed(self, parts: tuple[Token, Node]) -> Node:
        sign, part = parts
        calculate, operand = values.CALCULATIONS[sign], nodes.operand(part, sign)

        def run(message: Message, properties: Mapping[str, Any]) -> int | float | None:
            return calculate(0, operand(message, properties))

        may = possible.calculated(possible.constant(0), [sign], [part.possible])
        return nodes.calculation(run, _start(sign), [part], may)

    def bracket(self, parts: list[Node]) -> Node:
        (part,) = parts
        return part._replace(depth=nodes.depth_above(part.start, parts))

    def text(self, tokens: list[Token]) -> Node:
        return nodes.literal(_unquoted(tokens[0]), ValueKind.TEXT, _start(tokens[0]))

    def truth(self, tokens: list[Token]) -> Node:
        return nodes.literal(tokens[0].type == "TRUE", ValueKind.TRUTH, _start(tokens[0]))

    def exact(self, tokens: list[Token]) -> Node:
        (token,) = tokens
        digits = token.rstrip("lL")
        base = 16 if digits[1:2] in ("x", "X") else 8 if digits[0] == "0" else 10
        try:
            value = int(digits, base)
        except ValueError:
            advice = "a number that starts with 0 is octal, as in Java; remove the leading 0"
            raise Invalid(_start(token), advice) from None
        # One more than the greatest is allowed, so that the least can be written with a minus.
        if value > values.GREATEST + 1:
            advice = f"an exact number is at most {values.GREATEST}; write a greater one like 1E30"
            raise Invalid(_start(token), advice)
        return nodes.literal(value, ValueKind.NUMBER, _start(token))

    def approximate(self, tokens: list[Token]) -> Node:
        (token,) = tokens
        value = float(token.rstrip("fFdD"))
        if not math.isfinite(value):
            raise Invalid(_start(token), "an approximate number is at most 1.7E308")
        return nodes.literal(value, ValueKind.NUMBER, _start(token))

    def identifier(self, tokens: list[Token]) -> Node:
        name, start = str(tokens[0]), _start(tokens[0])
        if not name.replace("$", "_").isidentifier():
            raise Invalid(
                start,
                "an identifier consists of letters, digits, _ and $, and starts with no digit",
            )
        header = _HEADERS.get(name)
        if header is not None:
            read, may = header
            return Node(
                lambda message, properties: read(message), ValueKind.ANY, start, may, is_name=True
            )
        return _property(name, start)

    def quoted(self, tokens: list[Token]) -> Node:
        """A property with any name, as in SQL-92. Without need it is a mistake: text has others."""
        name, start = tokens[0][1:-1].replace('""', '"'), _start(tokens[0])
        is_plain = name.replace("$", "_").isidentifier() and name.upper() not in _RESERVED
        if is_plain and name not in _HEADERS:
            raise Invalid(start, f"text needs single quotes, and the name {name} needs none")
        return _property(name, start)


def _negated(node: Node, is_negated: Token | None, said: str) -> Node:
    return nodes.negation(node, node.start, f"NOT {said}") if is_negated is not None else node


def parse(text: str) -> Node:
    """Parse a condition, ready to evaluate.

    Raises:
        BadSelector: the text is not a valid condition.
    """
    try:
        node = cast(Node, _parser().parse(text))
        return nodes.whole(node)
    except Invalid as error:
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
