"""Sends messages in large batches, as fast as possible or at a rate, each with its send time.

A body begins with the time of its sending in nanoseconds and its number, eight bytes each.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from typing import Any

import uvloop
from aiokafka import AIOKafkaProducer

from ringfaust.protocol import headers as h
from ringfaust.protocol.partitioner import partition_of

BODY = struct.Struct(">QQ")
COLORS = ("red", "green", "blue", "white")
_CHUNK_S = 0.005
"""At a rate, the messages of so many seconds are sent together."""


def headers(options: dict[str, Any], number: int) -> list[tuple[str, bytes]]:
    """The headers of a message: its priority, properties and due time, if the load has them."""
    found = []
    if options["priorities"] > 1:
        found.append((h.PRIORITY, b"%d" % (number % options["priorities"])))
    if options["colors"]:
        found.append((h.PROPERTIES, b'{"color":"%s"}' % COLORS[number % 4].encode()))
    if due_ms := options.get("due_ms"):
        found.append((h.DELIVER_AT_MS, b"%d" % due_ms))
    return found


async def send(producer: AIOKafkaProducer, options: dict[str, Any]) -> None:
    """Send all messages. At a rate, wait for the clock before each chunk."""
    rest = b"x" * (options["body_bytes"] - BODY.size)
    rings, partitions, rate = options["rings"], options["partitions"], options["rate"]
    batches = [producer.create_batch() for _ in range(partitions)]
    began = time.monotonic()
    for number in range(options["messages"]):
        key = b"%d" % (number % rings) if rings > 1 else None
        partition = partition_of(key, partitions) if key else 0
        body = BODY.pack(time.time_ns(), number) + rest
        more = headers(options, number)
        batch = batches[partition]
        if batch.append(key=key, value=body, timestamp=None, headers=more) is None:
            await producer.send_batch(batch, options["topic"], partition=partition)
            batch = batches[partition] = producer.create_batch()
            batch.append(key=key, value=body, timestamp=None, headers=more)
        if rate and number / rate - (time.monotonic() - began) > _CHUNK_S:
            await producer.send_batch(batch, options["topic"], partition=partition)
            batches[partition] = producer.create_batch()
            await asyncio.sleep(number / rate - (time.monotonic() - began))
    for partition, batch in enumerate(batches):
        if batch.record_count():
            await producer.send_batch(batch, options["topic"], partition=partition)


async def _main(options: dict[str, Any]) -> None:
    size = max(200_000, 2 * options["body_bytes"])
    producer = AIOKafkaProducer(
        bootstrap_servers=options["servers"], max_batch_size=size, linger_ms=0
    )
    await producer.start()
    try:
        await send(producer, options)
    finally:
        await producer.stop()


if __name__ == "__main__":
    uvloop.run(_main(json.loads(sys.argv[1])))
