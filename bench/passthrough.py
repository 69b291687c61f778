"""A pass-through for comparison: aiokafka consumes and sends, without state or transactions.

`plain` uses aiokafka's defaults; `tuned` has the larger fetches and batches that the worker uses.
The process ends when all records are sent.
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

_FETCH = {"plain": {}, "tuned": {"max_poll_records": 4000}}
_BATCH = {"plain": {}, "tuned": {"linger_ms": 5, "max_batch_size": 200_000}}


async def _copy(kind: str, bootstrap_servers: str, source: str, target: str, count: int) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, **_FETCH[kind])
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, **_BATCH[kind])
    await consumer.start()
    await producer.start()
    tp = TopicPartition(source, 0)
    consumer.assign([tp])
    await consumer.seek_to_beginning(tp)
    done = 0
    while done < count:
        for records in (await consumer.getmany(tp, timeout_ms=1000)).values():
            for record in records:
                await producer.send(target, record.value, record.key, partition=0)
            done += len(records)
    await producer.stop()
    await consumer.stop()


if __name__ == "__main__":
    _, kind, servers, source, target, count = sys.argv
    asyncio.run(_copy(kind, servers, source, target, int(count)))
