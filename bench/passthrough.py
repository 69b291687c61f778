"""The plain peer: aiokafka, consume → `send`, no state, no transaction. Ends when all is sent."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


async def _copy(bootstrap_servers: str, source: str, target: str, count: int) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, max_poll_records=4000, auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, linger_ms=5, max_batch_size=200_000
    )
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
    asyncio.run(_copy(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
