"""Values as programs send and read them. No broker."""

from __future__ import annotations

import pytest

from ringfaust.client import BadArgument
from ringfaust.client.outgoing import OutgoingMessage
from tests.client.test_settling import Bench


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ("caf\u00e9", b"caf\xc3\xa9"),
        (b"\x00", b"\x00"),
        ({"a": 1, "b": None}, b'{"a":1,"b":null}'),
        ([1, "x"], b'[1,"x"]'),
    ],
)
def test_mappings_and_lists_are_sent_as_json(value: str, raw: bytes) -> None:
    assert OutgoingMessage.of("orders", value).record.value == raw


def test_a_producer_may_have_its_own_serializer() -> None:
    sent = OutgoingMessage.of("orders", {"a": 1}, lambda value: repr(value).encode())
    assert sent.record.value == b"{'a': 1}"


@pytest.mark.parametrize("value", [{"a": object()}, [float("nan")]])
def test_what_json_cannot_express_is_refused(value: list[float]) -> None:
    with pytest.raises(BadArgument, match="value: .*; pass text, bytes, or what JSON can express"):
        OutgoingMessage.of("orders", value)


async def test_a_message_is_read_as_json() -> None:
    message = Bench().message(1)
    with pytest.raises(ValueError, match="Expecting value"):
        message.json()
    message.value = b'{"eggs": 12}'
    assert message.json() == {"eggs": 12}
    message.value = None
    with pytest.raises(ValueError, match="<Message m1 of q, delivery 1> has no value"):
        message.json()
