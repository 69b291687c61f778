"""Kafka's default partitioner, in pure Python so that it also runs on Spark executors."""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's variant of the MurmurHash2 of `data`, as an unsigned 32-bit number."""
    length = len(data)
    whole = length & ~3
    digest = _SEED ^ length
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * _FACTOR & _MASK
        digest = (digest * _FACTOR & _MASK) ^ ((mixed ^ mixed >> 24) * _FACTOR & _MASK)
    if whole < length:
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    digest = (digest ^ digest >> 13) * _FACTOR & _MASK
    return digest ^ digest >> 15


def partition_of(key: str | bytes, partitions: int) -> int:
    """Return the partition to which Kafka's Java client and aiokafka send a record with this key.

    It also decides where a queue lives. A queue whose records are repartitioned lives in the
    partition of its name. A queue that is named after the key of records that are not repartitioned
    lives in the partition of that key.

    Args:
        key: the record's key or the queue's name; text is encoded as UTF-8.
        partitions: the number of partitions of the topic.
    """
    raw = key.encode() if isinstance(key, str) else key
    return (murmur2(raw) & 0x7FFFFFFF) % partitions
