"""The private APIs of aiokafka that `ringfaust.kafka` uses, behind public names.

`tests/kafka/test_vendor.py` pins each of them. aiokafka 0.14:

- `AIOKafkaClient.ready`: replaced on the client of one producer, to slow down its reconnects.
- `aiokafka.producer.sender.BACKOFF_OVERRIDE`: replaced for the whole process, because a producer
  waits for so long while the coordinator still completes its previous transaction.
- `AIOKafkaAdminClient.list_consumer_group_offsets`: leaves out partitions of a coordinator that is
  not ready, or raises NoError for them.
- `AIOKafkaAdminClient._client`: asked again, as long as it is connected. Its own requests for
  topics by name would have brokers create them.
- `AIOKafkaClient`, `aiokafka.protocol`: requests that aiokafka does not have, or whose answer it
  does not read to the end, see `_Metadata`, `_LeaveGroup` and `_DescribeGroup`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaConnectionError,
    KafkaError,
    NoError,
    NotCoordinatorError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.producer import sender
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeGroupsRequest_v3,
    DescribeGroupsResponse_v3,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)

COORDINATOR_NOT_READY = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NoError,  # aiokafka raises it for the error of a single partition
    NotCoordinatorError,
    NotCoordinatorForGroupError,
)
"""What the admin client raises while the coordinator of a group is not ready."""

_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 1.0


class Backoff:
    """Retries an unreachable broker less and less often, down to once a second.

    The client itself retries after milliseconds, which suits a busy coordinator. With a producer
    for each partition that would be thousands of connections a second while a broker restarts.
    """

    def __init__(self, ready: Callable[..., Awaitable[bool]]) -> None:
        """`ready`: the client's own method, which connects to a broker if necessary."""
        self._ready = ready
        self._wait_s: dict[int, float] = {}

    async def ready(self, node_id: int, **options: Any) -> bool:
        """Whether the broker can be reached. Waits before it returns False."""
        if await self._ready(node_id, **options):
            self._wait_s.pop(node_id, None)
            return True
        wait_s = self._wait_s.get(node_id, _BACKOFF_MIN_S)
        self._wait_s[node_id] = min(2 * wait_s, _BACKOFF_MAX_S)
        await asyncio.sleep(wait_s)
        return False


def use_backoff(producer: AIOKafkaProducer) -> None:
    """Make a producer retry unreachable brokers with `Backoff`. Call it before `start`."""
    client: Any = producer.client
    client.ready = Backoff(client.ready).ready


def retry_soon(seconds: float) -> None:
    """Set how long a producer waits while its previous transaction is not complete.

    This holds for every producer of the process.
    """
    sender.BACKOFF_OVERRIDE = seconds


# --- the metadata of topics, with their ids -------------------------------------------------------


class TopicMetadata(NamedTuple):
    """What one broker says."""

    cluster: str
    """The id of the cluster."""
    topics: Sequence[tuple[int, str, str]]
    """Error code, name and id of each topic. The id is empty if the broker does not know ids."""


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]
    """Sixteen bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: Any) -> bytes:
        return bytes(data.read(16))


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(
            ("node_id", Int32), ("host", CompactString()), ("port", Int32),
            ("rack", CompactString()), ("tags", TaggedFields),
        )),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        ("topics", CompactArray(
            ("error_code", Int16), ("topic", CompactString()), ("topic_id", _Uuid),
            ("is_internal", Boolean),
            ("partitions", CompactArray(
                ("error_code", Int16), ("partition", Int32), ("leader", Int32),
                ("leader_epoch", Int32), ("replicas", CompactArray(Int32)),
                ("isr", CompactArray(Int32)), ("offline", CompactArray(Int32)),
                ("tags", TaggedFields),
            )),
            ("authorized_operations", Int32), ("tags", TaggedFields),
        )),
        ("tags", TaggedFields),
    )  # fmt: skip


class _MetadataRequest_v12(RequestStruct):  # type: ignore[misc] # noqa: N801
    API_KEY = 3
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(
            ("topic_id", _Uuid), ("topic", CompactString()), ("tags", TaggedFields)
        )),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )  # fmt: skip


class _Metadata(Request[MetadataRequest_v5 | _MetadataRequest_v12]):  # type: ignore[misc]
    """Asks for topics by name: in version 12 if the broker has it, otherwise in version 5."""

    API_KEY = 3

    def __init__(self, names: Sequence[str], *, with_operations: bool = False) -> None:
        self._names = list(names)
        self._with_operations = with_operations

    def build(self, request_struct_class: type[Any]) -> Any:
        if request_struct_class is MetadataRequest_v5:
            return MetadataRequest_v5(self._names, False)
        topics: list[Any] = [(bytes(16), name, {}) for name in self._names]
        return _MetadataRequest_v12(topics, False, self._with_operations, {})


async def ask_every_broker(admin: AIOKafkaAdminClient, names: Sequence[str]) -> list[TopicMetadata]:
    """What each broker that can be reached says about these topics. Creates none of them.

    A client that stays connected learns of new brokers, too.

    Raises:
        KafkaError: no broker answers.
    """
    kafka = admin._client  # noqa: SLF001
    answers, asked = [], set[int]()
    error: KafkaError = KafkaConnectionError("no broker answers")
    while left := {broker.nodeId for broker in kafka.cluster.brokers()} - asked:
        asked |= left
        named: set[int] = set()
        for node_id in sorted(left):
            try:
                response = await kafka.send(node_id, _Metadata(names))
            except KafkaError as failed:
                error = failed
                continue
            answers.append(_answer(response))
            named |= {broker[0] for broker in response.brokers}
        if named - asked:  # they have come since the client last looked
            await kafka.force_metadata_update()
    if not answers:
        raise error
    return answers


def _answer(response: Any) -> TopicMetadata:
    if response.API_VERSION < _MetadataResponse.API_VERSION:
        return TopicMetadata(response.cluster_id, [(t[0], t[1], "") for t in response.topics])
    topics = [(t[0], t[1], str(uuid.UUID(bytes=t[2]))) for t in response.topics]
    return TopicMetadata(response.cluster_id, topics)


# --- the members of a group -----------------------------------------------------------------------


class _LeaveGroupResponse(Response):  # type: ignore[misc]
    API_KEY = 13
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("error_code", Int16),
        ("members", Array(
            ("member_id", String("utf-8")), ("group_instance_id", String("utf-8")),
            ("error_code", Int16),
        )),
    )  # fmt: skip


class _LeaveGroupRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 13
    API_VERSION = 3
    RESPONSE_TYPE = _LeaveGroupResponse
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("members", Array(
            ("member_id", String("utf-8")), ("group_instance_id", String("utf-8"))
        )),
    )  # fmt: skip


class _LeaveGroup(Request[_LeaveGroupRequest]):  # type: ignore[misc]
    """Removes a static member: aiokafka's own request knows only the sender's member id."""

    API_KEY = 13

    def __init__(self, group: str, instance: str) -> None:
        self._group = group
        self._instance = instance

    def build(self, request_struct_class: type[Any]) -> Any:
        return request_struct_class(self._group, [("", self._instance)])


async def remove_member(admin: AIOKafkaAdminClient, group: str, instance: str) -> None:
    """Remove a static member from a group; one that is not in it stays out.

    Raises:
        KafkaError: a request failed.
    """
    coordinator = await admin.find_coordinator(group)
    answer = await admin._client.send(coordinator, _LeaveGroup(group, instance))  # noqa: SLF001
    codes = {answer.error_code, *(code for *_, code in answer.members)}
    for code in codes - {NoError.errno, UnknownMemberIdError.errno}:
        raise for_code(code)(f"group {group}")


# --- what the brokers let a client do -------------------------------------------------------------

_SECURITY_DISABLED = 54
_ANY, _PATTERN_ANY = 1, 1


class Authorized(NamedTuple):
    """What the brokers let this client do. Operations are bits, by Kafka's numbers for them."""

    has_authorizer: bool
    """Without one, every client may do everything; nothing else is asked then."""
    topics: Mapping[str, int]
    """The operations on each topic. Without topics that do not exist."""
    group: int
    """The operations on the group."""


class _DescribeGroupRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = DescribeGroupsRequest_v3.SCHEMA


class _DescribeGroup(Request[_DescribeGroupRequest]):  # type: ignore[misc]
    """Asks for a group: aiokafka's own request leaves out the operations in the answer."""

    API_KEY = 15

    def __init__(self, name: str) -> None:
        self._name = name

    def build(self, request_struct_class: type[Any]) -> Any:
        return request_struct_class([self._name], True)


async def authorized(
    admin: AIOKafkaAdminClient, names: Sequence[str], group: str
) -> Authorized | None:
    """Ask what the brokers let this client do; None if they do not say (before Kafka 3.1).

    Raises:
        KafkaError: a request failed.
    """
    client = admin._client  # noqa: SLF001
    any_broker = client.get_random_node()
    acls = DescribeAclsRequest(_ANY, None, _PATTERN_ANY, None, None, _ANY, _ANY)
    if (await client.send(any_broker, acls)).error_code == _SECURITY_DISABLED:
        return Authorized(False, {}, 0)
    answer = await client.send(any_broker, _Metadata(names, with_operations=True))
    if answer.API_VERSION < _MetadataResponse.API_VERSION:
        return None
    denied = TopicAuthorizationFailedError.errno
    topics = {
        topic[1]: 0 if topic[0] == denied else topic[5]
        for topic in answer.topics
        if topic[0] in (0, denied)
    }
    try:
        coordinator = await admin.find_coordinator(group)
        ((code, *_, operations),) = (await client.send(coordinator, _DescribeGroup(group))).groups
        if code:
            raise for_code(code)(f"group {group}")
    except GroupAuthorizationFailedError:
        operations = 0
    return Authorized(True, topics, operations)
