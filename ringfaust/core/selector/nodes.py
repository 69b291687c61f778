"""The parts of a selector: what evaluates each, and what its text alone says of it (R15).

There is no syntax tree: a part is a `Node` with a closure that evaluates it. A part that is never
true has a fault, which is no reason to refuse a selector that was stored before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ringfaust.core import limits
from ringfaust.core.selector import possible, values
from ringfaust.core.selector.possible import Possible

if TYPE_CHECKING:
    from ringfaust.core.model import Message

Run = Callable[["Message", Mapping[str, Any]], Any]
"""Returns the value of a part for a message and its properties."""

_NEVER = "this is never true"


class ValueKind(StrEnum):
    """The type that a part has by its grammar."""

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
    possible: Possible
    depth: int = 1
    needs_properties: bool = False
    is_name: bool = False
    mismatch: Fault | None = None
    """A comparison of different types, wherever it stands."""
    likes: tuple[tuple[Run, int], ...] = ()
    """What it searches with LIKE, each with its `like_cost`."""
    operations: int = 1
    """What an evaluation calculates at most: itself, and its parts."""
    never: Fault | None = None
    """A condition that is never true, and that no NOT makes true."""


class Invalid(Exception):
    """The text is invalid at `start`, counted from 0."""

    def __init__(self, start: int, advice: str) -> None:
        super().__init__(advice)
        self.start = start
        self.advice = advice


def depth_above(start: int, parts: Sequence[Node]) -> int:
    """Return the depth of a node made of these parts."""
    depth = 1 + max(part.depth for part in parts)
    if depth > limits.SELECTOR_DEPTH:
        advice = f"nested too deeply; at most {limits.SELECTOR_DEPTH} levels are allowed"
        raise Invalid(start, advice)
    return depth


def literal(value: object, kind: ValueKind, start: int) -> Node:
    """Return the node of a value that the text gives."""
    return Node(lambda message, properties: value, kind, start, possible.constant(value))


def calculation(run: Run, start: int, parts: Sequence[Node], may: Possible) -> Node:
    """Return the node of a number that is calculated."""
    return _node(run, ValueKind.NUMBER, start, parts, may)


def truth(run: Run, start: int, parts: Sequence[Node], may: Possible, advice: str = _NEVER) -> Node:
    """Return the node of a condition; `advice` is given if it is never true."""
    return _judged(_node(run, ValueKind.TRUTH, start, parts, may), advice)


def negation(node: Node, start: int, advice: str = _NEVER) -> Node:
    """Return the node of NOT, which may make true what never is."""
    holds = condition(node)

    def run(message: Message, properties: Mapping[str, Any]) -> bool | None:
        result = holds(message, properties)
        return None if result is None else not result

    may = possible.negated(possible.condition(node.possible))
    return truth(run, start, [node], may, advice)


def chain(parts: Sequence[Node], *, decisive: bool) -> Node:
    """Return the node of OR, whose first true value decides, or of AND, whose first false does."""
    conditions = [condition(part) for part in parts]

    def run(message: Message, properties: Mapping[str, Any]) -> bool | None:
        result: bool | None = not decisive
        for each in conditions:
            value: bool | None = each(message, properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    of = possible.any_of if decisive else possible.all_of
    node = truth(
        run, parts[0].start, parts, of([possible.condition(part.possible) for part in parts])
    )
    never = next((part.never for part in parts if part.never), node.never)
    return node._replace(never=never)


def whole(node: Node) -> Node:
    """Return the node of a whole selector, which must be a condition."""
    run = condition(node)
    return _judged(node._replace(run=run, possible=possible.condition(node.possible)), _NEVER)


def condition(node: Node) -> Run:
    """Return the closure of a part that must be true, false or unknown."""
    if node.kind is ValueKind.TRUTH:
        return node.run
    if node.kind is not ValueKind.ANY:
        raise Invalid(node.start, f"{node.kind} is not a condition; compare it with something")
    run, truth_of = node.run, values.truth
    return lambda message, properties: truth_of(run(message, properties))


def operand(node: Node, use: str) -> Run:
    """Return the closure of a part that must be a number."""
    if node.kind not in (ValueKind.ANY, ValueKind.NUMBER):
        raise Invalid(node.start, f"{use} needs numbers, but this is {node.kind}")
    return node.run


def identifier(node: Node, use: str) -> Run:
    """Return the closure of a part that must be a name."""
    if not node.is_name:
        raise Invalid(node.start, f"{use} needs an identifier before it")
    return node.run


def mismatch(left: Node, sign: str, right: Node) -> Fault | None:
    """What is wrong with a comparison of different types (JMS 2.0, 3.8.1.1)."""
    if ValueKind.ANY in (left.kind, right.kind) or left.kind is right.kind:
        return None
    advice = f"{sign} is never true of {left.kind} and {right.kind}"
    if ValueKind.NUMBER in (left.kind, right.kind):
        advice += '; a property whose name has a minus or a dot is named in double quotes, "a-b"'
    return Fault(left.start + 1, advice)


def _node(run: Run, kind: ValueKind, start: int, parts: Sequence[Node], may: Possible) -> Node:
    return Node(
        run, kind, start, may, depth_above(start, parts),
        needs_properties=any(part.needs_properties for part in parts),
        mismatch=next((part.mismatch for part in parts if part.mismatch), None),
        likes=tuple([each for part in parts for each in part.likes]),
        operations=1 + sum([part.operations for part in parts]),
    )  # fmt: skip


def _judged(node: Node, advice: str) -> Node:
    if node.never or True in node.possible.truths:
        return node
    return node._replace(never=Fault(node.start + 1, advice))
