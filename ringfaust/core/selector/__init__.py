"""Message selectors: which messages a consumer accepts (R15).

The language is that of JMS 2.0, section 3.8: a subset of SQL-92 conditional expressions. An
identifier such as `JMSPriority` names a field of the message; any other names a property. Put a
name that is not an identifier in double quotes, as in SQL-92: `"content-type" = 'json'`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ringfaust.core import limits
from ringfaust.core.selector.values import Untyped
from ringfaust.errors import BadSelector

if TYPE_CHECKING:
    from ringfaust.core.model import Message
    from ringfaust.core.selector.nodes import Fault

__all__ = ["Selector", "Untyped", "check_selector", "compile_selector"]

_KEPT = 100
"""Compiled selectors in the cache, beside those that consumers and queues have. The longest take
0.7 MB each."""
_NO_PROPERTIES: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector. Two selectors are equal if their texts are equal."""

    text: str
    evaluate: Callable[[Message, Mapping[str, Any]], bool | None] = field(compare=False, repr=False)
    """Returns true, false or unknown (None) for a message and its properties."""
    needs_properties: bool = field(compare=False, repr=False)
    fault: Fault | None = field(compare=False, repr=False)
    operations: int = field(compare=False, repr=False)
    """What an evaluation calculates at most: its names, values, calculations and conditions."""
    likes: tuple[tuple[Callable[[Message, Mapping[str, Any]], Any], int], ...] = field(
        compare=False, repr=False, default=()
    )
    """What it searches with LIKE, each with its `like_cost`."""

    @property
    def cost_bytes(self) -> int:
        """What an evaluation counts among the bytes of a step, without its searches (R121)."""
        return limits.EVALUATION_COST_BYTES + limits.OPERATION_COST_BYTES * self.operations

    @property
    def searches(self) -> int:
        """How much it counts among the patterns of LIKE of a queue's consumers (R122)."""
        return sum([each for _, each in self.likes])

    def cost_of(self, message: Message) -> int:
        """What the evaluation for a message counts, with its searches (R121)."""
        cost = self.cost_bytes
        if self.likes:
            properties = message.payload.properties() if self.needs_properties else _NO_PROPERTIES
            for read, each in self.likes:
                text = read(message, properties)
                cost += each * len(text) // 16 if isinstance(text, str) else 0
        return cost

    def matches(self, message: Message) -> bool:
        """Return whether the selector is true for this message; unknown is false. Never raises."""
        properties = message.payload.properties() if self.needs_properties else _NO_PROPERTIES
        return self.evaluate(message, properties) is True


@lru_cache(_KEPT)
def compile_selector(text: str) -> Selector:
    """Compile a selector.

    Args:
        text: a JMS condition. Blank text is refused: to accept all messages, use no selector.

    Raises:
        BadSelector: the text is not a valid condition, or is too long or nested too deeply.
    """
    if len(text) > limits.SELECTOR_CHARS:
        raise BadSelector(
            text, limits.SELECTOR_CHARS + 1, f"at most {limits.SELECTOR_CHARS} characters"
        )
    if not text.strip():
        raise BadSelector(text, 1, "the selector is blank; leave it out to receive all messages")
    # The parser is loaded with the first selector; without selectors it is never loaded.
    from ringfaust.core.selector.grammar import parse  # noqa: PLC0415

    condition = parse(text)
    return Selector(
        text,
        condition.run,
        condition.needs_properties,
        condition.mismatch or condition.never,
        condition.operations,
        condition.likes,
    )


def check_selector(text: str) -> Selector:
    """Compile a selector that somebody gives. One that was stored before may have a fault.

    Raises:
        BadSelector: as `compile_selector`, or a condition in it can never be true.
    """
    selector = compile_selector(text)
    if selector.fault is not None:
        raise BadSelector(text, *selector.fault)
    return selector
