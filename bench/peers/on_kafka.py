"""What the peers that use the shared Kafka broker have in common."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from bench.kafka import Kafka


class OnKafka:
    """Nothing but the shared broker outlives a round."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
