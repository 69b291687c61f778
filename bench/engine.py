"""`python -m bench.engine`: CPU time of one partition without Kafka, by stage, in µs a record.

Decides, encodes and stores records as a worker does, with RocksDB and packed record batches, but
without a broker, sockets and threads. Figures are CPU time of the process, which other load hardly
changes; compare two versions in alternating runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rocksdict import Cache

from bench.kafka import COLORS
from bench.programs.producer import COLORS as NAMES
from ringfaust.core import commands as c
from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.kafka.transactions import BATCH_BYTES
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore
from ringfaust.protocol.headers import PROPERTIES
from ringfaust.protocol.record_batches import RecordBatches
from ringfaust.protocol.records import FetchedRecord, Role
from ringfaust.protocol.routes import Route
from ringfaust.worker.store.rocks import RocksStore

CACHE_BYTES = 256 << 20
VALUE = b"x" * 200
START_MS = 1_700_000_000_000
STAGES = ("take", "outputs", "rows", "changelog", "apply")
"""Decode and decide; pack events; encode rows; pack them for the changelog; store them."""


class Bench:
    """A processor over a RocksDB store, which notes the CPU time of each stage."""

    def __init__(self, folder: Path, queue: str, ring_size: int) -> None:
        self.store = RocksStore(folder / "partition-0", Cache(CACHE_BYTES))
        catalog = Catalog({"#": {"ring_size": ring_size, "consumer_timeout": 0}}, {})
        self.state = State(ByteStore(self.store), catalog)
        config = ProcessorConfig(
            control_topic="control",
            repartition_topic="hop",
            routes=[Route("in", queue)],
            max_record_bytes=1 << 20,
            log_is_clock=False,
        )
        self.processor = Processor(config, self.state, {}, self._new_batches)
        self.processor.is_cut = True
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.rows = self.changelog_bytes = self.offset = 0
        self.written: dict[str, int] = {}
        """By role: how many records were written."""
        self._positions = {"in": 0, "control": 0}

    def _new_batches(self) -> RecordBatches:
        return RecordBatches(BATCH_BYTES)

    def colored(self) -> FetchedRecord:
        """The next message, with a property of `COLORS` values."""
        header = PROPERTIES, b'{"color":"%s"}' % NAMES[self._positions["in"] % COLORS].encode()
        return self.record("in", None, VALUE)._replace(headers=(header,))

    def record(self, topic: str, key: bytes | None, value: bytes) -> FetchedRecord:
        """The next record of a topic, as the consumer returns it."""
        offset = self._positions[topic]
        self._positions[topic] = offset + 1
        time_ms = START_MS + offset // 50
        return FetchedRecord(topic, 0, offset, time_ms, 0, key, value, ())

    def run(self, records: list[FetchedRecord]) -> None:
        """Process records as one batch, or as several if they do not fit into one (R114)."""
        clock = time.process_time
        now_ms = START_MS + self._positions["in"] // 50
        times = [clock()]
        rest = iter(records)
        self.processor.take(rest, now_ms)
        times.append(clock())
        outputs = self.processor.outputs()
        times.append(clock())
        writes = self.processor.writes()
        times.append(clock())
        changelog = self._new_batches()
        changelog.append_rows(writes.changelog)
        times.append(clock())
        self.store.apply(writes.store, self.offset, now_ms)
        self.processor.committed(CACHE_BYTES)
        times.append(clock())
        for stage, began, ended in zip(STAGES, times, times[1:], strict=False):
            self.seconds[stage] += ended - began
        self.rows += len(writes.changelog)
        self.offset += len(writes.changelog)
        self.changelog_bytes += sum(len(batch.data) for batch in changelog.batches)
        for (role, _), batches in outputs.items():
            self.written[role] = self.written.get(role, 0) + len(batches)
        assert not self.processor.is_unfinished
        if left := list(rest):
            self.run(left)

    def forget_times(self) -> None:
        """Begin to measure."""
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.rows = self.changelog_bytes = 0
        self.written = {}


def evict(folder: Path, count: int, batch: int) -> tuple[Bench, int]:
    """A full ring of 1,000: each record evicts another."""
    return _sends(folder, 1, 1_000, count, batch)


def _sends(folder: Path, keys: int, ring: int, count: int, batch: int) -> tuple[Bench, int]:
    bench = Bench(folder, "{key}", ring)
    names = [b"key-%d" % number for number in range(keys)]
    fill = keys * ring
    for begin in range(0, fill + count, batch):
        if begin - batch < fill <= begin:
            bench.forget_times()
            timed = fill + count - begin
        bench.run([bench.record("in", names[n % keys], VALUE) for n in range(begin, begin + batch)])
    return bench, timed


def rings(keys: int) -> Callable[[Path, int, int], tuple[Bench, int]]:
    """Full rings of 2, one for each key, which take turns."""
    return lambda folder, count, batch: _sends(folder, keys, 2, count, batch)


CREDIT = 1_000


def cycle(acks: int) -> Callable[[Path, int, int], tuple[Bench, int]]:
    """A consumer with a credit of 1,000 acks each message; `acks`: how many in a record."""

    def run(folder: Path, count: int, batch: int) -> tuple[Bench, int]:
        bench = Bench(folder, "queue", -1)
        attach = c.Attach("queue", "consumer", CREDIT)
        fields = {"type": "attach", **attach._asdict()}
        bench.run([bench.record("control", None, json.dumps(fields).encode())])
        bench.run([bench.record("in", None, VALUE) for _ in range(CREDIT)])
        bench.forget_times()
        acked = 0
        step = min(batch // 2, CREDIT)
        for _ in range(0, count, step):
            records = [bench.record("in", None, VALUE) for _ in range(step)]
            settled = range(acked, acked + step)
            records += [bench.record("control", None, raw) for raw in _acks(settled, acks)]
            acked += step
            bench.run(records)
        assert bench.written[Role.DISPATCHED] == acked
        return bench, acked

    return run


def quarter(selector: str) -> Callable[[Path, int, int], tuple[Bench, int]]:
    """A consumer with a credit of 1,000 acks one message of four; the others stay.

    With a selector, three of four do not match; without one, it is slower than its producer. Times
    are of each message that was delivered.
    """

    def run(folder: Path, count: int, batch: int) -> tuple[Bench, int]:
        bench = Bench(folder, "queue", -1)
        attach = c.Attach("queue", "consumer", CREDIT, selector=selector)
        bench.run(
            [
                bench.record(
                    "control", None, json.dumps({"type": "attach", **attach._asdict()}).encode()
                )
            ]
        )
        for _ in range(COLORS):
            bench.run([bench.colored() for _ in range(CREDIT)])
        bench.forget_times()
        every = COLORS if selector else 1
        acked = 0
        step = min(batch // (COLORS + 1), CREDIT)
        for _ in range(0, count, COLORS * step):
            records = [bench.colored() for _ in range(COLORS * step)]
            settled = range(acked, acked + step)
            records += [bench.record("control", None, raw) for raw in _acks(settled, 1, every)]
            acked += step
            bench.run(records)
        assert bench.written[Role.DISPATCHED] == acked
        return bench, acked

    return run


def backlog(folder: Path, count: int, batch: int) -> tuple[Bench, int]:
    """All messages are sent first; then a consumer with a credit of 1,000 acks them, 500 at once.

    This is what a worker does whose producers are faster than its consumers.
    """
    bench = Bench(folder, "queue", -1)
    fields = {"type": "attach", **c.Attach("queue", "consumer", CREDIT)._asdict()}
    bench.run([bench.record("control", None, json.dumps(fields).encode())])
    bench.forget_times()
    for _ in range(0, count, batch):
        bench.run([bench.record("in", None, VALUE) for _ in range(batch)])
    sent = bench.record("in", None, VALUE).offset
    for begin in range(0, sent, CREDIT // 2):
        settled = range(begin, min(begin + CREDIT // 2, sent))
        bench.run([bench.record("control", None, raw) for raw in _acks(settled, CREDIT // 2)])
    assert bench.written[Role.DISPATCHED] == sent
    return bench, sent


def _acks(numbers: range, most: int, every: int = 1) -> Iterator[bytes]:
    """Control records that ack deliveries in order; `most` in a record, each `every`th message."""
    who = {"queue": "queue", "consumer": "consumer"}
    if most == 1:
        for number in numbers:
            ack = {
                "type": "ack",
                **who,
                "message": f"in/0/{number * every}",
                "delivery": number + 1,
            }
            yield json.dumps(ack).encode()
        return
    for begin in range(numbers.start, numbers.stop, most):
        some = range(begin, min(begin + most, numbers.stop))
        deliveries = [(number + 1, f"in/0/{number}") for number in some]
        yield json.dumps({"type": "ack_many", **who, "deliveries": deliveries}).encode()


CASES: dict[str, Callable[[Path, int, int], tuple[Bench, int]]] = {
    "evict": evict,
    "cycle": cycle(1),
    "cycle-many": cycle(100),
    "quarter": quarter(""),
    "selector": quarter("color = 'red'"),
    "backlog": backlog,
    "rings-1000": rings(1_000),
    "rings-10000": rings(10_000),
    "rings-100000": rings(100_000),
}


def main() -> None:
    """Run the cases that were asked for, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(CASES))
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=4_000, help="records in a transaction")
    asked = parser.parse_args()
    gc.set_threshold(100_000, 50, 100)  # as in a worker
    print(f"{'µs a record':14}{'all':>7}", *(f"{stage:>9}" for stage in STAGES), end="")
    print(f"{'rows':>9}{'bytes':>9}")
    for name in asked.cases or CASES:
        with tempfile.TemporaryDirectory() as folder:
            bench, count = CASES[name](Path(folder), asked.records, asked.batch)
        micros = [1e6 * bench.seconds[stage] / count for stage in STAGES]
        print(f"{name:14}{sum(micros):7.2f}", *(f"{each:9.2f}" for each in micros), end="")
        print(f"{bench.rows / count:9.2f}{bench.changelog_bytes / count:9.0f}", flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
