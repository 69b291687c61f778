"""Which dead and evicted records were sent again, by whichever redrive (R43).

A redrive selects records in any order, so one offset for each partition does not say which were
sent. Instead a bitmap does, with one bit for each record. It is the metadata of an offset of a
consumer group, so it is committed in the transaction that sends the records. The brokers limit the
metadata to 4,096 bytes, so each group covers a page of 16,384 offsets of every partition.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import redriven_group
from ringfaust.kafka.offsets import group_offsets

PAGE_RECORDS = 1 << 14
"""Offsets of a page. A bitmap that does not compress at all has 2,744 characters."""
_VERSION = "1:"


class Origin(NamedTuple):
    """Where a dead or evicted record is."""

    topic: str
    partition: int
    offset: int

    @property
    def page(self) -> int:
        """The number of the page of its offset."""
        return self.offset // PAGE_RECORDS


class UnknownRedriven(RingfaustError):
    """A group does not contain what this version of ringfaust writes; nothing was sent."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"consumer group {group} does not say in a form that this version reads which messages "
            "were redriven: use the version that wrote it, or delete the group to send all again"
        )


class RedrivenPage:
    """Which records of one page of offsets were sent again, in all partitions of a topic."""

    def __init__(self, application: str, topic: str, number: int) -> None:
        """`number`: the first offset of the page, divided by `PAGE_RECORDS`."""
        self.number = number
        self.group = redriven_group(application, number)
        self._topic = topic
        self._first = number * PAGE_RECORDS
        self._bits: dict[int, int] = {}

    async def read(self, client: Mapping[str, Any], partitions: Iterable[int]) -> None:
        """Read what was committed of these partitions.

        Raises:
            UnknownRedriven: a later version wrote it.
            KafkaError: the brokers do not answer.
        """
        wanted = [(self._topic, partition) for partition in partitions]
        found = await group_offsets(client, self.group, wanted)
        for (_, partition), committed in found.items():
            self._bits[partition] = self._decode(committed.metadata)

    def has(self, origin: Origin) -> bool:
        """Whether the record was sent again."""
        return bool(self._bits.get(origin.partition, 0) >> (origin.offset - self._first) & 1)

    def add(self, origin: Origin) -> None:
        """Note that the record is sent again."""
        bits = self._bits.get(origin.partition, 0)
        self._bits[origin.partition] = bits | 1 << (origin.offset - self._first)

    def remove(self, origin: Origin) -> None:
        """Forget that the record was sent again."""
        bits = self._bits.get(origin.partition, 0)
        self._bits[origin.partition] = bits & ~(1 << (origin.offset - self._first))

    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit: the offset after the last record that was sent, and the bitmap."""
        return {
            TopicPartition(self._topic, partition): OffsetAndMetadata(
                self._first + bits.bit_length(), _encode(bits)
            )
            for partition, bits in self._bits.items()
        }

    def _decode(self, text: str) -> int:
        try:
            if not text.startswith(_VERSION):
                raise ValueError(text)
            raw = zlib.decompress(base64.b64decode(text.removeprefix(_VERSION), validate=True))
        except (ValueError, zlib.error):
            raise UnknownRedriven(self.group) from None
        return int.from_bytes(raw, "little")


def _encode(bits: int) -> str:
    raw = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return _VERSION + base64.b64encode(zlib.compress(raw, 9)).decode()
