"""In which partition a queue lives that no record's partition has decided."""

from __future__ import annotations

from aiokafka.partitioner import murmur2


def partition_of_queue(name: str | bytes, partitions: int) -> int:
    """Where Kafka's Java client, and aiokafka, put a record with this key.

    A queue whose records take the hop lives where its name would go. A queue whose records do not,
    and whose name is made of their key, lives where that key goes.
    """
    raw = name.encode() if isinstance(name, str) else name
    return int(murmur2(raw) & 0x7FFFFFFF) % partitions
