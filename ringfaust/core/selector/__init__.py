"""Message selectors: which messages a consumer wants (R15).

The language is that of JMS 2.0, chapter 3.8: a subset of SQL-92's conditional expressions.
Identifiers are `JMS…` fields of the message and, all others, properties of its payload.
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

__all__ = ["Selector", "Untyped", "compile_selector"]

_KEPT = 1_000
"""Compiled selectors kept; as many again cost a fraction of a second."""
_NO_PROPERTIES: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector. Two are equal if their texts are."""

    text: str
    judge: Callable[[Message, Mapping[str, Any]], bool | None] = field(compare=False, repr=False)
    """True, false, or unknown (None) for a message and its properties."""
    needs_properties: bool = field(compare=False, repr=False)

    def matches(self, message: Message) -> bool:
        """Is it true for this message? False if it is false or unknown. Never raises."""
        properties = message.payload.properties() if self.needs_properties else _NO_PROPERTIES
        return self.judge(message, properties) is True


@lru_cache(_KEPT)
def compile_selector(text: str) -> Selector:
    """A selector from its text.

    Args:
        text: a condition as in JMS. Blank text is none: whoever wants all messages has no selector.

    Raises:
        BadSelector: it is not such a condition, or too long or too deep (`limits`).
    """
    if len(text) > limits.SELECTOR_CHARS:
        raise BadSelector(
            text, limits.SELECTOR_CHARS + 1, f"at most {limits.SELECTOR_CHARS} characters"
        )
    if not text.strip():
        raise BadSelector(text, 1, "it is blank; leave it out to have all messages")
    # The first selector builds the parser; who has none never loads it.
    from ringfaust.core.selector.grammar import parse  # noqa: PLC0415

    condition = parse(text)
    return Selector(text, condition.run, condition.needs_properties)
