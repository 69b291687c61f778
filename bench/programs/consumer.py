"""Consumes a queue by `RingConsumer` and acks as the README does; measures rate and latency."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from bench.programs.producer import BODY
from ringfaust.client import RingConsumer

ACK_EVERY = 250
"""In mode `client` one ack covers so many messages."""


class Meter:
    """Counts what arrives. The first tenth is the warm-up."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.received = 0
        self.in_order = True
        self._warm = count // 10
        self._began = (0.0, 0.0)
        self._latencies_ms: list[float] = []
        self._last = -1

    def add(self, body: bytes) -> None:
        """Count a message, by the time and the number in its body."""
        sent_ns, number = BODY.unpack_from(body)
        self.received += 1
        self.in_order &= number > self._last
        self._last = number
        if self.received == self._warm:
            self._began = (time.monotonic(), _cpu_s())
        elif self.received > self._warm:
            self._latencies_ms.append((time.time_ns() - sent_ns) / 1e6)

    def result(self) -> dict[str, float]:
        """The figures, at the end."""
        began, cpu_s = self._began
        timed = len(self._latencies_ms)
        percentiles = statistics.quantiles(self._latencies_ms, n=100)
        return {
            "per_second": timed / (time.monotonic() - began),
            "client_us": (_cpu_s() - cpu_s) / timed * 1e6,
            "p50_ms": percentiles[49],
            "p99_ms": percentiles[98],
            "in_order": float(self.in_order),
            "ended_s": time.time(),
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _consume(options: dict[str, Any], meter: Meter) -> None:
    acks_each = options["ack_mode"] == "individual"
    acks_some = options["ack_mode"] == "client"
    async with RingConsumer(
        "orders",
        bootstrap_servers=options["servers"],
        application=options["application"],
        credit=options["credit"],
        ack_mode=options["ack_mode"],
        selector=options["selector"],
        partition=0,
    ) as consumer:
        Path(options["ready"]).touch()
        async for message in consumer:
            meter.add(message.value or b"")
            if options["work_ms"]:
                await asyncio.sleep(options["work_ms"] / 1000)
            is_last = meter.received == meter.count
            if acks_each or (acks_some and (is_last or meter.received % ACK_EVERY == 0)):
                await message.ack()
            if is_last:
                break


async def _main(options: dict[str, Any]) -> None:
    meter = Meter(options["messages"])
    task = asyncio.create_task(_consume(options, meter))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return
    # The block has ended: what was acked is written.
    Path(options["result"]).write_text(json.dumps(meter.result()))


if __name__ == "__main__":
    uvloop.run(_main(json.loads(sys.argv[1])))
