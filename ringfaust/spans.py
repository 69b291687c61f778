"""Spans of OpenTelemetry: what programs and workers do with a message, in its sender's trace.

Nothing is imported here, and nothing is written, unless the program itself has set a tracer
provider, for example by running under `opentelemetry-instrument`. The context travels in the header
`traceparent` of the message (W3C Trace Context), which workers pass on like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

TRACEPARENT = "traceparent"
_FIELDS = (TRACEPARENT, "tracestate")


def open_spans() -> Spans | None:
    """Return what writes spans; None if the program has set no tracer provider."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    return None if isinstance(provider, api.ProxyTracerProvider) else _spans_of(provider)


@lru_cache(maxsize=1)
def _spans_of(provider: object) -> Spans:
    return Spans(provider)


class Spans:
    """Writes spans with a tracer provider."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - only if the program has imported it
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        self._api = trace
        self._tracer = provider.get_tracer("ringfaust")
        self._format = TraceContextTextMapPropagator()

    @contextmanager
    def sending(self, topic: str) -> Iterator[None]:
        """Write a span for the sending of a message. It is current within the block."""
        attributes = _attributes("send", topic)
        kind = self._api.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(f"send {topic}", kind=kind, attributes=attributes):
            yield

    def with_context(self, headers: Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
        """Add the context of the current span to a message's headers, unless they have one."""
        if TRACEPARENT in headers:
            return headers
        carrier: dict[str, str] = {}
        self._format.inject(carrier)
        return {**headers, **carrier}

    def received(
        self, queue: str, message_id: str, named: Mapping[str, bytes], dispatched_ms: int
    ) -> MessageSpan:
        """Write a span for the receipt of a message, and open one for its processing.

        Args:
            queue: the queue.
            message_id: the id of the message.
            named: its headers.
            dispatched_ms: when its dispatched record was written, ms since 1970.
        """
        parent = self.context_of(named.items())
        attributes = _attributes("receive", queue, message_id)
        kind = self._api.SpanKind.CONSUMER
        self._tracer.start_span(
            f"receive {queue}", parent, kind, attributes, start_time=dispatched_ms * 1_000_000
        ).end()
        return MessageSpan(self._api, self._tracer, parent, queue, message_id)

    def context_of(self, headers: Iterable[tuple[str, Any]]) -> Any:
        """Return the context that a message's headers carry; an empty one if there is none."""
        from opentelemetry.context import Context  # noqa: PLC0415 - as above

        carrier = {
            name: value.decode(errors="replace")
            for name, value in headers
            if name in _FIELDS and value
        }
        return self._format.extract(carrier, Context())

    def is_valid(self, context: Any) -> bool:
        """Whether a context names a span."""
        return bool(self._api.get_current_span(context).get_span_context().is_valid)

    def write(
        self,
        operation: str,
        queue: str,
        parent: Any,
        *,
        start_ms: int,
        end_ms: int,
        linked: Any = None,
        **attributes: str | int,
    ) -> None:
        """Write a span of a worker.

        Args:
            operation: the first word of its name, such as `evict`.
            queue: the queue or topic.
            parent: the context of the message.
            start_ms: when it began, ms since 1970.
            end_ms: when it ended.
            linked: the context of another message that has to do with it.
            attributes: more attributes; `.` is written as `_`.
        """
        links = []
        if linked is not None and self.is_valid(linked):
            links.append(self._api.Link(self._api.get_current_span(linked).get_span_context()))
        more = {f"ringfaust.{name}": value for name, value in attributes.items()}
        self._tracer.start_span(
            f"{operation} {queue}",
            parent,
            self._api.SpanKind.CONSUMER,
            _attributes(operation, queue) | more,
            links,
            start_ms * 1_000_000,
        ).end(max(end_ms, start_ms) * 1_000_000)


class MessageSpan:
    """The span of the processing of a received message, until it is settled."""

    def __init__(self, api: Any, tracer: Any, parent: Any, queue: str, message_id: str) -> None:
        self._api = api
        self._tracer = tracer
        self._queue = queue
        self._id = message_id
        self.span = tracer.start_span(
            f"process {queue}",
            parent,
            api.SpanKind.CONSUMER,
            _attributes("process", queue, message_id),
        )
        """The span of OpenTelemetry."""

    @contextmanager
    def settling(self, how: str) -> Iterator[None]:
        """Write a span for the settle, which is current within the block.

        Args:
            how: `ack`, `release` or `reject`.
        """
        attributes = _attributes("settle", self._queue, self._id) | {"ringfaust.settle": how}
        with self._tracer.start_as_current_span(
            f"settle {self._queue}",
            self._api.set_span_in_context(self.span),
            self._api.SpanKind.CLIENT,
            attributes,
        ):
            yield

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it the current span within the block, and record an exception that leaves it."""
        with self._api.use_span(self.span, end_on_exit=False):
            yield

    def end(self) -> None:
        """End it; what was ended before stays as it is."""
        if self.span.is_recording():
            self.span.end()


def _attributes(operation: str, destination: str, message_id: str = "") -> dict[str, Any]:
    found = {
        "messaging.system": "ringfaust",
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }
    return found | {"messaging.message.id": message_id} if message_id else found
