"""Spans of client and worker, collected by OpenTelemetry's exporter in memory. No broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ringfaust.client import RingProducer
from ringfaust.client.consumer import DispatchSnapshot
from ringfaust.client.outgoing import OutgoingMessage
from ringfaust.core.effects import Evicted
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import FetchedRecord
from ringfaust.spans import open_spans
from ringfaust.worker.partition.spans import WorkerSpans
from tests.client.test_settling import Bench
from tests.processor.test_queries import NOW_MS, Partition
from tests.records import new_record

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


class Exported:
    """The finished spans."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter

    @property
    def names(self) -> list[str]:
        return [each.name for each in self._exporter.get_finished_spans()]

    def __getitem__(self, name: str) -> Any:
        (found,) = [each for each in self._exporter.get_finished_spans() if each.name == name]
        return found


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exported]:
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Exported(exporter)
    provider.shutdown()


def headers_of(span: Any) -> dict[str, bytes]:
    """The header with which a message of that span is sent."""
    context = span.get_span_context()
    ids = f"{context.trace_id:032x}-{context.span_id:016x}"
    return {"traceparent": f"00-{ids}-{int(context.trace_flags):02x}".encode()}


def test_without_a_provider_there_are_no_spans_and_no_imports() -> None:
    assert open_spans() is None
    program = (
        "import sys, ringfaust.client, ringfaust.worker.partition.spans\n"
        "from ringfaust.spans import open_spans\n"
        "print(open_spans(), 'opentelemetry' in sys.modules)"
    )
    run = [sys.executable, "-c", program]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "None False\n"


async def test_a_send_has_a_span_and_its_message_carries_the_context(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[OutgoingMessage] = []

    async def keep(_: object, topic: str, value: Any, **options: Any) -> str:
        sent.append(OutgoingMessage.of(topic, value, **options))
        return "m"

    monkeypatch.setattr(RingProducer, "_send", keep)
    assert await RingProducer().send("orders", "eggs", headers={"mine": "1"}) == "m"
    span = exported["send orders"]
    assert span.kind is trace.SpanKind.PRODUCER
    assert dict(sent[0].record.headers) == {"mine": b"1", **headers_of(span)}
    theirs = {"traceparent": f"00-{7:032x}-{8:016x}-01"}
    await RingProducer().send("orders", "eggs", headers=theirs)
    assert dict(sent[1].record.headers)["traceparent"].decode() == theirs["traceparent"]


async def test_receive_process_and_settle_are_in_the_senders_trace(exported: Exported) -> None:
    with trace.get_tracer("test").start_as_current_span("checkout") as sender:
        pass
    bench = Bench()
    first = bench.message(1)
    named = first._named | headers_of(sender)
    record = new_record("dispatched", 1, b"body", tuple(named.items()))

    class Attachment:
        def take(self) -> tuple[FetchedRecord, dict[str, bytes]]:
            return record, named

        def check(self) -> None:
            """Nothing has failed."""

        def forget(self, end: object) -> None:
            """There is nothing to forget."""

    bench.consumer._attachment = Attachment()  # type: ignore[assignment]
    message = await bench.consumer.receive()
    assert exported.names == ["checkout", "receive q"]
    await message.ack(confirm=True)
    assert exported.names == ["checkout", "receive q", "process q", "settle q"]
    own = sender.get_span_context()
    for name in ("receive q", "process q"):
        assert exported[name].parent.span_id == own.span_id
        assert exported[name].attributes["messaging.message.id"] == "m1"
    settle = exported["settle q"]
    assert settle.parent.span_id == exported["process q"].context.span_id
    assert settle.context.trace_id == own.trace_id
    assert settle.attributes["ringfaust.settle"] == "ack"
    late = await bench.consumer.receive()
    bench.consumer.forget(DispatchSnapshot([1], {}))
    assert late.span is not None
    assert not late.span.span.is_recording()
    await bench.consumer._settles.close()


def test_an_eviction_is_in_the_trace_of_its_message_and_linked_to_the_one_that_evicts(
    exported: Exported,
) -> None:
    tracer = trace.get_tracer("test")
    senders = {name: tracer.start_span(name) for name in ("old", "new")}
    spans = open_spans()
    assert spans is not None
    worker = WorkerSpans(spans)
    partition = Partition()
    processor = partition.processor
    processor.observe(evictions=True, counts=False)
    offset = 0
    evicted: Sequence[Evicted] = []
    for batch in (["old", "plain"], ["new"]):
        records = []
        for id_ in batch:
            traced = headers_of(senders[id_]) if id_ in senders else {}
            named = {"to": b"by.one", h.ID: id_.encode(), **traced}
            records.append(new_record("in", offset, b"body", tuple(named.items())))
            offset += 1
        processor.take(worker.watch(records), NOW_MS)
        evicted = processor.activity().evictions
        worker.commit(NOW_MS)
        processor.outputs()
        worker.committed(evicted, NOW_MS + 5)
    assert [(gone.message.id, gone.cause) for gone in evicted] == [("plain", "new")]
    assert exported.names == ["process in", "evict by.one", "process in"]
    evict = exported["evict by.one"]
    assert evict.parent.span_id == senders["old"].get_span_context().span_id
    assert evict.attributes["ringfaust.cause"] == "plain"
    assert evict.attributes["ringfaust.reason"] == "overflow"
    assert not evict.links


def test_the_evicting_message_is_linked(exported: Exported) -> None:
    tracer = trace.get_tracer("test")
    old, new = tracer.start_span("old"), tracer.start_span("new")
    spans = open_spans()
    assert spans is not None
    worker = WorkerSpans(spans)
    processor = Partition().processor
    processor.observe(evictions=True, counts=False)
    records = [
        new_record(
            "in", number, b"body",
            (("to", b"by.one"), (h.ID, name), *headers_of(span).items()),
        )
        for number, (name, span) in enumerate(((b"old", old), (b"new", new)))
    ]  # fmt: skip
    processor.take(worker.watch(records), NOW_MS)
    worker.commit(NOW_MS)
    worker.committed(processor.activity().evictions, NOW_MS + 5)
    evict = exported["evict by.one"]
    (link,) = evict.links
    assert link.context.span_id == new.get_span_context().span_id
    assert evict.parent.span_id == old.get_span_context().span_id
    assert evict.attributes["ringfaust.cause"] == "new"


def test_a_context_that_is_no_text_is_none(exported: Exported) -> None:
    """Otherwise it stops the partition of the worker, and each consumer that gets the message."""
    spans = open_spans()
    assert spans is not None
    odd = (("traceparent", b"\xff"), ("tracestate", b"\xff"))
    assert not spans.is_valid(spans.context_of(odd))
    traced = headers_of(trace.get_tracer("test").start_span("sender"))
    assert spans.is_valid(spans.context_of((*traced.items(), odd[1])))
    records = [new_record("in", 0, b"body", odd)]
    assert list(WorkerSpans(spans).watch(records)) == records
