"""Version 2 of Kafka's transactions (KIP-890), which aiokafka does not know: two requests a commit.

A produce request adds its partitions to the transaction itself, so nobody has to ask for that
before. The answer to the end of a transaction has a new epoch for the next one, so a request that
arrives late cannot take effect in it. Brokers have it since Kafka 4.0, if their operators have
turned it on, as is the default of a new cluster.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.protocol.admin import ApiVersionRequest_v0
from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import EndTxnRequest, EndTxnRequest_v0
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
    UnsignedVarInt32,
)

_FEATURE = "transaction.version"
_FINALIZED_FEATURES = 2
"""The tag of this field."""
_TEXT = CompactString("utf-8")
_NO_TAGS = TaggedFields.encode({})
_CONCURRENT, _FENCED, _OLD_EPOCH, _RETRY = 51, 90, 47, 19
"""Error codes: the transaction before is still being completed; a newer producer has taken over,
in new words and in those that aiokafka knows; one that aiokafka answers by sending again."""


# --- which version the brokers have ---------------------------------------------------------------


class _ApiVersionResponse(Response):  # type: ignore[misc]
    API_KEY = 18
    API_VERSION = 3
    SCHEMA = Schema(
        ("error_code", Int16),
        ("api_versions", CompactArray(
            ("api_key", Int16), ("min_version", Int16), ("max_version", Int16),
            ("tags", TaggedFields),
        )),
        ("throttle_time_ms", Int32),
        ("tags", TaggedFields),
    )  # fmt: skip


class _ApiVersionRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 18
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ApiVersionResponse
    SCHEMA = Schema(("name", _TEXT), ("version", _TEXT), ("tags", TaggedFields))

    def parse_response_header(self, read_buffer: BytesIO | bytes) -> ResponseHeader_v0:
        """The old header: a client reads it before it knows what the broker can do."""
        return ResponseHeader_v0.decode(read_buffer)


class AskVersion(Request[ApiVersionRequest_v0 | _ApiVersionRequest]):  # type: ignore[misc]
    """Asks a broker what it can do. `has_version_2` reads the answer."""

    API_KEY = 18

    def build(self, request_struct_class: type[Any]) -> Any:
        """Called with the newest class that the broker knows."""
        if request_struct_class is ApiVersionRequest_v0:
            return ApiVersionRequest_v0()
        return request_struct_class("ringfaust", "1", {})


def has_version_2(answer: Any) -> bool:
    """Whether the cluster has transactions of version 2, by the answer to `AskVersion`."""
    if answer.API_VERSION < _ApiVersionResponse.API_VERSION:
        return False
    features = CompactArray(
        ("name", _TEXT), ("max_level", Int16), ("min_level", Int16), ("tags", TaggedFields)
    )
    found = answer.tags.get(_FINALIZED_FEATURES)
    levels = {name: level for name, level, *_ in features.decode(BytesIO(found))} if found else {}
    return bool(levels.get(_FEATURE, 0) >= 2)


# --- produce --------------------------------------------------------------------------------------


class _ProduceResponse(Response):  # type: ignore[misc]
    API_KEY = 0
    API_VERSION = 12
    SCHEMA = Schema(
        ("topics", CompactArray(
            ("topic", _TEXT),
            ("partitions", CompactArray(
                ("partition", Int32), ("error_code", Int16), ("offset", Int64),
                ("timestamp", Int64), ("log_start_offset", Int64),
                ("record_errors", CompactArray(
                    ("batch_index", Int32), ("message", _TEXT), ("tags", TaggedFields)
                )),
                ("error_message", _TEXT), ("tags", TaggedFields),
            )),
            ("tags", TaggedFields),
        )),
        ("throttle_time_ms", Int32),
        ("tags", TaggedFields),
    )  # fmt: skip


class _ProduceRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 0
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ProduceResponse
    SCHEMA = Schema(
        ("transactional_id", _TEXT), ("required_acks", Int16), ("timeout", Int32), ("topics", Int32)
    )
    """Of its first fields: `encode` writes it, and copies the batches once."""

    def encode(self) -> bytes:
        """The bytes of the request."""
        number = UnsignedVarInt32.encode
        parts = [
            _TEXT.encode(self.transactional_id), Int16.encode(self.required_acks),
            Int32.encode(self.timeout), number(len(self.topics) + 1),
        ]  # fmt: skip
        for topic, partitions in self.topics:
            parts += (_TEXT.encode(topic), number(len(partitions) + 1))
            for partition, records in partitions:
                parts += (Int32.encode(partition), number(len(records) + 1), records, _NO_TAGS)
            parts.append(_NO_TAGS)
        parts.append(_NO_TAGS)
        return b"".join(parts)


class Produced(NamedTuple):
    """The answer to a `Produce`, as aiokafka reads version 8."""

    topics: list[tuple[str, list[tuple[Any, ...]]]]
    API_VERSION: int = 8

    @property
    def is_fenced(self) -> bool:
        """Whether a newer producer has taken over."""
        return any(error == _OLD_EPOCH for _, parts in self.topics for _, error, *_ in parts)


class Produce(Request[_ProduceRequest]):  # type: ignore[misc]
    """A request of aiokafka's producer that adds its partitions to the transaction."""

    API_KEY = 0

    def __init__(self, request: ProduceRequest) -> None:
        self._request = request

    def build(self, request_struct_class: type[_ProduceRequest]) -> Any:
        """Called with the only class there is."""
        return self._request.build(request_struct_class)

    def read(self, answer: Any) -> Produced:
        """The answer in aiokafka's form. What is to be sent again has an error that says so."""
        return Produced([
            (topic, [
                (partition, _RETRY if error == _CONCURRENT else error, *rest)
                for partition, error, *rest, _ in partitions
            ])
            for topic, partitions, _ in answer.topics
        ])  # fmt: skip


# --- the end of a transaction ---------------------------------------------------------------------


class _EndTxnResponse(Response):  # type: ignore[misc]
    API_KEY = 26
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("error_code", Int16),
        ("producer_id", Int64), ("producer_epoch", Int16), ("tags", TaggedFields),
    )  # fmt: skip


class _EndTxnRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 26
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _EndTxnResponse
    SCHEMA = Schema(
        ("transactional_id", _TEXT), ("producer_id", Int64), ("producer_epoch", Int16),
        ("transaction_result", Boolean), ("tags", TaggedFields),
    )  # fmt: skip


class Ended(NamedTuple):
    """The answer to an `EndTransaction`."""

    error_code: int
    """In the words of the version that aiokafka knows."""
    producer_id: int
    """From now on; there is another one when the epochs of the first are used up."""
    producer_epoch: int


class EndTransaction(Request[_EndTxnRequest]):  # type: ignore[misc]
    """Ends a transaction, and asks for the next epoch."""

    API_KEY = 26

    def __init__(self, request: EndTxnRequest) -> None:
        self._request = request

    def build(self, request_struct_class: type[_EndTxnRequest]) -> Any:
        """Called with the only class there is."""
        old = self._request.build(EndTxnRequest_v0)
        return request_struct_class(
            old.transactional_id, old.producer_id, old.producer_epoch, old.transaction_result, {}
        )

    def read(self, answer: Any) -> Ended:
        """The answer."""
        code = _OLD_EPOCH if answer.error_code == _FENCED else answer.error_code
        return Ended(code, answer.producer_id, answer.producer_epoch)
