"""What the status of 100,000 queues takes: bytes on the topic, and a reader's time and memory.

    python -m bench.status_rows

It runs in process: it writes the row of each queue and has a `StatusReader`'s rows take it.
"""

from __future__ import annotations

import resource
import time

from ringfaust.client.status import StatusRows
from ringfaust.protocol.status import QueueState, queue_key, write_queue_status
from ringfaust.worker.observe.status import BYTES_PER_S

QUEUES = 100_000


def row(number: int) -> bytes:
    """The row of a busy ring of 50 messages."""
    added = 1_000 + number
    counts = (50, 3, 0, added, added // 5, added - added // 5 - 53, 0, 0, 0, 0, 0, 0)
    return write_queue_status(
        QueueState(counts, (), 1, 10_000 + number, '{"ring_size":50}'),
        partition=number % 4,
        time_ms=1_800_000_000_000 + number,
        oldest_ms=1_800_000_000_000 - number,
        rates={"added": 12.5, "acked": 2.5, "evicted": 10.0},
        evicted_by={"overflow": counts[5]},
    )


def main() -> None:
    """Measure, and print the figures."""
    records = [
        (number % 4, queue_key(f"departures.{number}"), row(number)) for number in range(QUEUES)
    ]
    size = sum(len(key) + len(value) for _, key, value in records)
    print(f"rows of {QUEUES:,} queues: {size / 1e6:.1f} MB, {size / QUEUES:.0f} bytes each")
    print(f"all of them busy: a row of each queue every {size / BYTES_PER_S:.0f} s")
    rows = StatusRows()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    for partition, key, value in records:
        rows.take(partition, key, value)
    seconds = time.process_time() - start
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"a reader: {used:.0f} MiB, {seconds:.1f} s of CPU time")
    start = time.process_time()
    found = sum(1 for _ in rows.queues())
    print(f"all {found:,} queues once: {(time.process_time() - start) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
