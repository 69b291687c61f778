"""Produce requests that copy their batches once. aiokafka's copy them at each level: six times."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v7, ProduceResponse_v7
from aiokafka.protocol.types import Int16, Int32, String

_TEXT = String("utf-8")


class _ProduceRequest(RequestStruct):  # type: ignore[misc]
    """Version 7, which brokers have since Kafka 2.1."""

    API_KEY = 0
    API_VERSION = 7
    RESPONSE_TYPE = ProduceResponse_v7
    SCHEMA = ProduceRequest_v7.SCHEMA

    def encode(self) -> bytes:
        """The same bytes as aiokafka's."""
        parts = [
            _TEXT.encode(self.transactional_id), Int16.encode(self.required_acks),
            Int32.encode(self.timeout), Int32.encode(len(self.topics)),
        ]  # fmt: skip
        for topic, partitions in self.topics:
            parts += (_TEXT.encode(topic), Int32.encode(len(partitions)))
            for partition, records in partitions:
                parts += (Int32.encode(partition), Int32.encode(len(records)), records)
        return b"".join(parts)


class OneCopy(Request[_ProduceRequest]):  # type: ignore[misc]
    """A request of aiokafka's producer, written by this module."""

    API_KEY = 0

    def __init__(self, request: ProduceRequest) -> None:
        self._request = request

    def build(self, request_struct_class: type[_ProduceRequest]) -> Any:
        """Called with the only class there is."""
        return self._request.build(request_struct_class)
