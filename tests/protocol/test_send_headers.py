"""What a producer may say in headers: properties, delivery mode, xid, redrives (R15, R43, R81)."""

from __future__ import annotations

import pytest

from ringfaust.core.commands import Send
from ringfaust.core.selector import Untyped, compile_selector
from ringfaust.errors import ProtocolError
from ringfaust.protocol.records import Payload
from ringfaust.protocol.routes import PROPERTIES_BYTES, read_send
from ringfaust.protocol.stored_rows import read_message, write_message
from tests.protocol.test_stored_rows import WHOLE
from tests.records import new_record


def send(*headers: tuple[str, bytes], key: bytes | None = b"key", value: bytes = b"value") -> Send:
    return read_send(new_record("in", 0, value, headers, key), "q", "in/0/0", 1_000)


def test_properties_are_typed_text_or_what_reads_as_a_number() -> None:
    headers = (
        ("region", b"eu"), ("number", b"7"), ("null", None), ("bytes", b"\xff"), ("both", b"text"),
        ("ringfaust-group", b"g"), ("ringfaust-properties", b'{"total":7.5,"wet":true,"both":1}'),
    )  # fmt: skip
    payload = send(*headers).payload  # type: ignore[arg-type]
    found = dict(payload.properties())
    assert found == {"region": "eu", "number": "7", "total": 7.5, "wet": True, "both": 1}
    assert type(found["region"]) is Untyped and type(found["both"]) is int
    message = WHOLE._replace(payload=payload)
    message = read_message(write_message(message))
    for selector in ("region = 'eu' AND total > 7", "number = 7 AND wet = TRUE", "both = 1"):
        assert compile_selector(selector).matches(message)


def test_only_properties_and_redrives_are_passed_on() -> None:
    headers = (
        ("mine", b"1"), ("ringfaust-id", b"a"), ("ringfaust-properties", b"{}"),
        ("ringfaust-redrives", b"2"), ("ringfaust-redrive-of", b"q/17"), ("ringfaust-xid", b"x"),
        ("ringfaust-queue", b"q"),
        ("ringfaust-delivery-mode", b"non_persistent"),
    )  # fmt: skip
    found = send(*headers)
    assert (found.id, found.xid, found.persistent) == ("a", "x", False)
    assert (found.redrives, found.redrive_of) == (2, "q/17")
    kept = (("mine", b"1"), ("ringfaust-properties", b"{}"), ("ringfaust-redrives", b"2"))
    assert found.payload == Payload(b"key", b"value", kept, "in/0/0")
    assert found.size_bytes == 8 + sum(len(name) + len(value) for name, value in kept)
    assert send(key=None, value=b"").size_bytes == 0


def test_a_record_is_no_redrive_because_it_says_so() -> None:
    """A program that forwards our records copies their headers."""
    found = send(("ringfaust-redrives", b"2"), ("mine", b"1"))
    assert (found.redrives, found.redrive_of) == (0, "")
    assert found.payload.headers == (("mine", b"1"),)
    assert found.size_bytes == len(b"key" + b"value" + b"mine1")


OURS = (
    "id", "priority", "group", "delay-ms", "deliver-at-ms", "ttl-ms", "expires-at-ms", "properties",
    "delivery-mode", "xid", "xid-owner", "redrives", "redrive-of",
)  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_a_null_header_is_absent(name: str) -> None:
    """A4. Many clients cannot leave a header out."""
    assert send((f"ringfaust-{name}", None)) == send()  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [b"0", b"-1", b"-62135596800000"])
@pytest.mark.parametrize("name", ["delay-ms", "deliver-at-ms", "ttl-ms", "expires-at-ms"])
def test_no_time_and_a_negative_one_are_none(name: str, value: bytes) -> None:
    assert send((f"ringfaust-{name}", value)) == send()


@pytest.mark.parametrize("value", [b"%d" % (2**47 + 1), b"9223372036854775807", b"9" * 5_000])
def test_an_expiry_beyond_the_last_time_is_never(value: bytes) -> None:
    for name in ("ringfaust-ttl-ms", "ringfaust-expires-at-ms"):
        assert send((name, value)) == send()
    for name in ("ringfaust-delay-ms", "ringfaust-deliver-at-ms"):
        with pytest.raises(ProtocolError, match=name):
            send((name, value))


def test_the_last_times_that_count() -> None:
    at, after = b"%d" % 2**47, b"%d" % (2**47 - 1_000)
    for headers in ([("ringfaust-expires-at-ms", at)], [("ringfaust-ttl-ms", after)]):
        assert send(*headers).expires_at_ms == 2**47
    for headers in ([("ringfaust-deliver-at-ms", at)], [("ringfaust-delay-ms", after)]):
        assert send(*headers).due_ms == 2**47


WRONG = {
    "ringfaust-properties": [
        b"", b"[]", b"7", b"{", b'{"a":[1]}', b'{"a":{}}', b'{"a":NaN}', b'{"a":1e999}',
        b'{"a":9223372036854775808}', b"\xff", b"[" * 9_000, b'{"a":' + b"9" * 5_000 + b"}",
        b'{"a":"' + b"x" * PROPERTIES_BYTES + b'"}',
    ],
    "ringfaust-delivery-mode": [b"", b"persistant", b"1"],
    "ringfaust-xid": [b"\xff", b"x" * 250, b"a\0"],
    "ringfaust-redrives": [b"", b"-1", b"many", b"9" * 15],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_what_makes_no_sense_is_refused_by_name(name: str, value: bytes) -> None:
    with pytest.raises(ProtocolError, match=name) as caught:
        send((name, value))
    assert len(str(caught.value)) < 400
