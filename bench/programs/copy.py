"""Copies a topic as fast as aiokafka can with transactions: whole batches, one commit each."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

RECORDS = 4_000
BATCH_BYTES = 1_000_000


async def _copy(options: dict[str, Any]) -> None:
    servers, target = options["servers"], options["target"]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, max_poll_records=RECORDS, group_id=target,
        enable_auto_commit=False,
    )  # fmt: skip
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=target, max_batch_size=BATCH_BYTES
    )
    await consumer.start()
    await producer.start()
    tp = TopicPartition(options["topic"], 0)
    consumer.assign([tp])
    await consumer.seek_to_beginning(tp)
    done = 0
    while done < options["messages"]:
        for records in (await consumer.getmany(tp, timeout_ms=1_000)).values():
            async with producer.transaction():
                batch = producer.create_batch()
                for record in records:
                    added = batch.append(key=record.key, value=record.value, timestamp=None)
                    if added is None:
                        await producer.send_batch(batch, target, partition=0)
                        batch = producer.create_batch()
                        batch.append(key=record.key, value=record.value, timestamp=None)
                await producer.send_batch(batch, target, partition=0)
                await producer.send_offsets_to_transaction({tp: records[-1].offset + 1}, target)
            done += len(records)
    await asyncio.Event().wait()  # until SIGTERM: its CPU time is still to be read


if __name__ == "__main__":
    uvloop.run(_copy(json.loads(sys.argv[1])))
