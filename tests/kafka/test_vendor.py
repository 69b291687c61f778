"""The private behaviour of aiokafka behind `kafka/vendor.py`.

A failure here means that an update of aiokafka has changed something that is not part of its API.
Do not adapt the test alone: read the new code, then `kafka/vendor.py`, `kafka/transactions.py` and
`kafka/offsets.py`, and run tests/broker/test_commit.py.
"""

from __future__ import annotations

import inspect
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, NoError, StaleMetadata
from aiokafka.producer import sender
from aiokafka.producer.sender import AddPartitionsToTxnHandler, Sender
from aiokafka.protocol.metadata import MetadataRequest

from ringfaust.kafka import vendor
from ringfaust.kafka.topic_ids import topic_ids_again
from ringfaust.kafka.vendor import COORDINATOR_NOT_READY, retry_soon, use_backoff


async def test_the_client_of_a_producer_asks_its_own_ready_method() -> None:
    """If not: `use_backoff` has no effect, and a broker that restarts is flooded."""
    parameters = inspect.signature(AIOKafkaClient.ready).parameters
    assert list(parameters) == ["self", "node_id", "group"]
    assert inspect.iscoroutinefunction(AIOKafkaClient.ready)
    assert "await self.ready(node_id, group=group)" in inspect.getsource(AIOKafkaClient.send)
    assert "self.client.ready(" in inspect.getsource(Sender)
    producer = AIOKafkaProducer(bootstrap_servers="localhost:1")
    before = producer.client.ready
    use_backoff(producer)
    assert producer.client.ready != before
    assert producer._sender.client is producer.client


def test_a_producer_waits_for_its_previous_transaction_as_long_as_this_says() -> None:
    """If not: a commit that follows another takes 20 ms longer."""
    source = inspect.getsource(AddPartitionsToTxnHandler.handle_response)
    assert "return BACKOFF_OVERRIDE" in source
    before = sender.BACKOFF_OVERRIDE
    retry_soon(0.001)
    assert sender.BACKOFF_OVERRIDE == 0.001
    retry_soon(before)


async def answer(*partitions: tuple[int, int, str, int]) -> dict[TopicPartition, Any]:
    """What the admin client makes of a coordinator's answer: partition, offset, metadata, error."""
    response = SimpleNamespace(error_code=0, topics=[("in", partitions)])

    async def send(*_: object) -> Any:
        return response

    admin = SimpleNamespace(_send_request=send)
    tps = [TopicPartition("in", 0), TopicPartition("in", 1)]
    return await AIOKafkaAdminClient.list_consumer_group_offsets(admin, "group", 1, tps)


async def test_the_admin_client_leaves_out_partitions_that_the_answer_lacks() -> None:
    """If not: `group_offsets` may ask again for ever, or take a partial answer for a whole one."""
    found = await answer((0, 7, "", 0))
    assert found.keys() == {TopicPartition("in", 0)}
    found = await answer((0, 7, "", 0), (1, -1, "", 0))
    assert [offset.offset for offset in found.values()] == [7, -1]


async def test_the_error_of_a_single_partition_is_raised_as_no_error() -> None:
    """If not: `COORDINATOR_NOT_READY` can do without NoError."""
    coordinator_load_in_progress = 14
    with pytest.raises(NoError):
        await answer((0, -1, "", coordinator_load_in_progress))
    assert NoError in COORDINATOR_NOT_READY


# --- the ids of topics (R111) ---------------------------------------------------------------------

ID = bytes(range(16))
NAMES = ["in"]


def test_the_metadata_request_is_version_12_if_the_broker_has_it() -> None:
    """If not: the ids of topics stay unknown, or the broker refuses the request."""
    request = vendor._Metadata(NAMES)
    new = request.prepare({3: (0, 13)})
    assert new.API_VERSION == 12
    assert new.build_request_header(1, "me").encode().endswith(b"\0\x02me\0")
    assert new.encode() == b"\x02" + bytes(16) + b"\x03in\0" + b"\0\0\0"
    old = request.prepare({3: (0, 8)})
    assert (old.API_VERSION, old.encode()) == (5, b"\0\0\0\1\0\2in\0")


def test_a_request_for_permissions_asks_for_operations_and_reads_them() -> None:
    """If not: `ringfaust doctor` does not see what ACLs lack."""
    metadata = vendor._Metadata(NAMES, with_operations=True).prepare({3: (0, 13)})
    assert metadata.encode().endswith(b"\0\1\0")
    group = vendor._DescribeGroup("g").prepare({15: (0, 6)})
    assert (group.API_VERSION, group.encode()) == (3, b"\0\0\0\1\0\1g\1")
    raw = b"\0" * 4 + b"\0\0\0\1" + b"\0\0\0\1g" + b"\0\0" * 3 + b"\0" * 4 + b"\0\0\1\x08"
    ((code, *_, operations),) = group.RESPONSE_TYPE.decode(BytesIO(raw)).groups
    assert (code, operations) == (0, 1 << 8 | 1 << 3)


def test_the_ids_are_read_from_the_response() -> None:
    partition = b"\0\0" + b"\0\0\0\0" * 3 + b"\1\1\1\0"
    topic = b"\0\0\x03in" + ID + b"\0\2" + partition + b"\x80\0\0\0\0"
    raw = b"\0\0\0\0" + b"\1" + b"\3me" + b"\0\0\0\1" + b"\2" + topic + b"\0"
    found = vendor._answer(vendor._MetadataResponse.decode(BytesIO(raw)))
    assert found == vendor.TopicMetadata("me", [(0, "in", "00010203-0405-0607-0809-0a0b0c0d0e0f")])


async def test_a_client_that_stays_connected_asks_brokers_that_have_come_since() -> None:
    """One that lags behind still reports a topic that was deleted (R111)."""
    known, asked = [1, 2], list[Any]()

    async def send(node_id: int, request: Any) -> Any:
        asked.append((node_id, type(request)))
        if node_id == 2:
            raise KafkaConnectionError
        brokers = [(number, "host", 9092) for number in (1, 3)]
        return SimpleNamespace(
            API_VERSION=5, brokers=brokers, cluster_id=f"by {node_id}", topics=[]
        )

    async def force_metadata_update() -> None:
        known.append(3)

    cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=each) for each in known])
    kafka = SimpleNamespace(cluster=cluster, send=send, force_metadata_update=force_metadata_update)
    admin: Any = SimpleNamespace(_client=kafka)
    answers = await vendor.ask_every_broker(admin, NAMES)
    assert [each.cluster for each in answers] == ["by 1", "by 3"]
    # No other request: aiokafka's own have brokers create a topic that was deleted.
    assert asked == [(number, vendor._Metadata) for number in (1, 2, 3)]
    assert isinstance(AIOKafkaAdminClient(bootstrap_servers="localhost:1")._client, AIOKafkaClient)
    assert "is not None\n                else True" in inspect.getsource(MetadataRequest.build)


async def test_brokers_that_do_not_agree_about_an_id_are_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [vendor.TopicMetadata("me", [(0, "in", name)]) for name in ("old", "new")]

    async def ask(*_: object) -> list[vendor.TopicMetadata]:
        return answers

    monkeypatch.setattr("ringfaust.kafka.topic_ids.ask_every_broker", ask)
    with pytest.raises(StaleMetadata, match="do not agree"):
        await topic_ids_again(None, NAMES)
    answers.pop()
    assert (await topic_ids_again(None, NAMES)).topics == {"in": "old"}
    answers[0] = vendor.TopicMetadata("me", [(3, "in", "")])
    assert (await topic_ids_again(None, NAMES)).topics == {}
