"""Hypothesis strategies for the effects that a worker encodes most."""

from __future__ import annotations

from hypothesis import strategies as st

from ringfaust.core import effects as e
from ringfaust.core.model import PLAIN, Delivery, EvictReason, Message
from ringfaust.protocol.records import Payload

data = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=70)
data |= st.sampled_from([4_000, 8_190, 8_191, 8_192, 8_193]).map(bytes)
texts = st.sampled_from(["", "q", "straße", "a" * 63, "a" * 64, "ü" * 63, '"\\/\x7f\0\x1f\n😀'])
texts |= st.text(max_size=5)
counts = st.integers(0, 2**31) | st.integers(0, 70)
times = st.integers(0, 2**41)
headers = st.lists(st.tuples(texts, data), max_size=3)
records = st.tuples(data, data, headers)
payloads = st.builds(Payload, data, data, headers.map(tuple), texts)
messages = st.builds(
    Message,
    id=texts, sequence=counts, position=st.just(PLAIN), priority=st.integers(0, 9),
    enqueued_ms=times, expires_at_ms=st.just(0) | times, due_ms=st.just(0) | times, group=texts,
    attempts=counts, handovers=counts, holders=st.just(()), size_bytes=counts, payload=payloads,
    persistent=st.booleans(), is_bodyless=st.just(False),
)  # fmt: skip
evictions = st.builds(
    e.Evicted,
    queue=texts, message=messages, reason=st.sampled_from(EvictReason), cause=texts,
    ring_size=st.integers(-1, 2**31), ready=counts, at_ms=times,
    payload=st.sampled_from(["full", "reference", "none"]),
)  # fmt: skip
deliveries = st.builds(Delivery, counts, texts, messages, times)
dispatches = st.builds(e.Dispatched, texts, deliveries)
