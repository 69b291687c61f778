"""Memory and transactions of commands on large queues (R114): one partition, in process.

Prints resident memory, and for each command its transactions and the CPU time of the longest.
docs/operations.md (limits) has the figures.
"""

from __future__ import annotations

import argparse
import gc
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rocksdict import Cache

from ringfaust.core import commands as c
from ringfaust.core.catalog import Catalog
from ringfaust.core.engine import Engine
from ringfaust.core.state import State
from ringfaust.processor.row_store import ByteStore
from ringfaust.protocol.records import Payload
from ringfaust.protocol.stored_rows import encode_writes
from ringfaust.worker.store.rocks import RocksStore

CACHE_BYTES = 64 << 20
BATCH = 5_000


class Partition:
    """An engine over a RocksDB store; every transaction is applied to the store at once."""

    def __init__(self, path: Path) -> None:
        self.store = RocksStore(path, Cache(CACHE_BYTES))
        self.state = State(ByteStore(self.store), Catalog({"#": {"consumer_timeout": 0}}, {}))
        self.engine = Engine(self.state)

    def commit(self) -> None:
        """Write what has changed."""
        self.store.apply(encode_writes(self.state.writes()), 0, 0)
        self.state.committed(CACHE_BYTES)

    def run(self, command: c.Command) -> tuple[int, float, float]:
        """Execute a command; its transactions, its seconds, and the longest one's on the CPU."""
        began, last = time.monotonic(), time.thread_time()
        count, longest = 0, 0.0
        self.engine.begin(command, 1)
        while True:
            self.commit()
            count += 1
            now = time.thread_time()
            longest, last = max(longest, now - last), now
            if not self.engine.is_unfinished:
                return count, time.monotonic() - began, longest
            self.engine.go_on()

    def send(self, sends: Iterator[c.Send]) -> None:
        """Add messages, in batches as a worker does."""
        for number, send in enumerate(sends, 1):
            self.engine.step(send, 1)
            if number % BATCH == 0:
                self.commit()
        self.commit()


def messages(queues: int, count: int, size: int) -> Iterator[c.Send]:
    """Messages that go round the queues."""
    for number in range(count):
        payload = Payload(None, b"%d" % number + b"x" * size, (), f"in/0/{number}")
        yield c.Send(f"q{number % queues}", f"m{number}", 1, size_bytes=size, payload=payload)


def resident_mib() -> float:
    """Resident memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def peak_mib() -> float:
    """The most resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


CASES = {
    "ring": (1, 1_000_000, 100),
    "rings": (100_000, 10_000_000, 100),
    "bytes": (1, 100_000, 12_000),
}
"""Queues, messages, and bytes of each."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.large_queues", description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--messages", type=int, default=0, help="another number of messages")
    asked = parser.parse_args()
    gc.set_threshold(100_000, 50, 100)  # as in a worker
    queues, count, size = CASES[asked.case]
    count = asked.messages or count
    with tempfile.TemporaryDirectory() as folder:
        partition = Partition(Path(folder, "partition-0"))
        began = time.monotonic()
        partition.send(messages(queues, count, size))
        _print(f"{count:,} messages of {size:,} bytes in {queues:,} queues", began)
        for name, command in (
            ("remove an unknown id", c.Remove("q0", "nothing")),
            ("attach with a selector that matches none", c.Attach("q0", "s", 9, selector="a = 1")),
            ("detach it", c.Detach("q0", "s")),
            ("attach with credit 100,000", c.Attach("q0", "k", 100_000)),
            ("recover", c.Recover("q0", "k")),
            ("detach", c.Detach("q0", "k")),
            ("purge", c.Purge("q0")),
        ):
            count, seconds, longest = partition.run(command)
            about = (
                f"{count} transactions in {seconds:.1f} s, the longest {longest:.2f} s of the CPU"
            )
            print(
                f"{name}: {about}; {resident_mib():.0f} MiB, peak {peak_mib():.0f} MiB", flush=True
            )


def _print(what: str, began: float) -> None:
    took = time.monotonic() - began
    print(f"{what}: {took:.0f} s; {resident_mib():.0f} MiB, peak {peak_mib():.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
