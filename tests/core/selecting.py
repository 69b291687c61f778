"""What the tests of selectors share: a message, and a judgement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringfaust.core.model import Message
from ringfaust.core.selector import compile_selector


class Payload:
    """Stands for the host's: has properties, and counts how often it was asked."""

    headers = ()

    def __init__(self, **properties: Any) -> None:
        self.values = properties
        self.asked = 0

    def properties(self) -> Mapping[str, Any]:
        self.asked += 1
        return self.values


PLAIN = Message(
    id="m-1", sequence=1, position=1, priority=4, enqueued_ms=1_000, expires_at_ms=0, due_ms=0,
    group="", attempts=0, handovers=0, holders=(), size_bytes=1, payload=Payload(),
)  # fmt: skip


def result_of(text: str, **properties: Any) -> bool | None:
    """True, false or unknown; `matches` says the same of the message."""
    selector = compile_selector(text)
    result = selector.evaluate(PLAIN, properties)
    assert selector.matches(PLAIN._replace(payload=Payload(**properties))) is (result is True)
    return result
