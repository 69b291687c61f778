"""Arguments of the wrong type are named where they are given, and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.client import BadArgument, RingConsumer, RingProducer
from ringfaust.client.outgoing import OutgoingMessage


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bootstrap_servers": ["h:9092"]}, "bootstrap_servers must be host:port of one or more"),
        ({"bootstrap_servers": "localhost:9o92"}, "not 'localhost:9o92'"),
        ({"timeout_ms": "60000"}, "timeout_ms must be a whole number of 1 or more, not '60000'"),
        ({"timeout_ms": 0}, "timeout_ms must be a whole number of 1 or more, not 0"),
        ({"heartbeat_ms": 2.5}, "heartbeat_ms must be a whole number of 1 or more, not 2.5"),
    ],
)
def test_options_of_a_client(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadArgument) as refused:
        RingConsumer("orders", **options)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("client_options", "says"),
    [
        ({"sasl_user": "secret"}, "unexpected keyword argument 'sasl_user'"),
        ({"acks": 1}, "acks"),
        ({"security_protocol": "SSL"}, "ssl_context"),
    ],
)
async def test_options_of_the_kafka_client(client_options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadArgument, match="client_options: ") as refused:
        await RingProducer(client_options=client_options).start()
    assert says in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": 17}, "key must be text or bytes, not 17"),
        ({"headers": {"a": 1}}, "headers: a must be text or bytes, not 1"),
        ({"delay_ms": "5"}, "delay_ms must be a whole number, not '5'"),
        ({"ttl_ms": 2.5}, "ttl_ms must be a whole number, not 2.5"),
        ({"id": "half \ud83d"}, "ringfaust-id: 'utf-8' codec can't encode"),
        ({"key": "half \ud83d"}, "key: 'utf-8' codec can't encode"),
    ],
)
def test_options_of_a_message(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadArgument) as refused:
        OutgoingMessage.of("orders", "a", **options)
    assert says in str(refused.value)
