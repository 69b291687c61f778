"""A console on many made-up queues, for looking at it: see `test_browser`.

`python -m tests.console.made_up` serves it on port 6170.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from unittest.mock import AsyncMock, create_autospec, patch

from aiohttp import web

from ringfaust.client.errors import Refused
from ringfaust.client.inspected import (
    COUNTS,
    ConsumerDetails,
    Excerpt,
    MessagePage,
    QueueDetails,
    XidDetails,
)  # fmt: skip
from ringfaust.client.lifecycles import Lifecycle, Trace
from ringfaust.client.status_rows import QueueRates, QueueStatus
from ringfaust.console.app import attach_console
from ringfaust.console.context import ConsoleOptions
from ringfaust.console.redriving import GoneMessage, Preview, Redriver
from ringfaust.core.model import Counts
from ringfaust.core.settings import QueueSpec
from tests.console.harness import TOKEN, FixedBackend, FixedStatus, message_row, worker_row

NAMES = (
    "audit.trail", "departures.ATL", "departures.BOS", "departures.EWR", "departures.JFK",
    "departures.LGA", "departures.ORD", "departures.SFO", "orders", "orders.returned",
    "payments.captured", "shipping.labels", "telemetry.truck.4711",
)  # fmt: skip
_SIZES = (-1, 100, 1_000, 5_000)
_PAST = 120
_STEP_S = 2


class MadeUpStatus(FixedStatus):
    """Queues that rise and fall."""

    def __init__(self, queues: int) -> None:
        names = [*NAMES, *(f"sensor.{number:05}" for number in range(queues - len(NAMES)))]
        super().__init__([], [])
        self._names = names
        self._random = random.Random(1)

    def move(self, step: int) -> None:
        """Go on to the next moment."""
        self._queues = [self._row(number, name, step) for number, name in enumerate(self._names)]
        self._workers = [
            replace(
                worker_row(f"ringfaust-{number}-{70 + number}-{number}c4f"), time_ms=_now_ms(),
                lag={2 * number: 12 * number}, partitions=(2 * number, 2 * number + 1),
            )
            for number in range(3)
        ]  # fmt: skip

    def _row(self, number: int, name: str, step: int) -> QueueStatus:
        ring_size = _SIZES[number % len(_SIZES)]
        wave = 0.55 + 0.5 * math.sin(number + step / 25)
        ready = int(min(wave, 1.0) * ring_size) if ring_size > 0 else int(400 + 300 * wave)
        added = 90 * wave + self._random.random() * 15
        evicted = added * 0.3 if 0 < ring_size <= ready else 0.0
        gone = 9_000 + 4_000 + 60
        held, scheduled = number % 9, (number * 3) % 5
        return QueueStatus(
            queue=name, partition=number % 6, time_ms=_now_ms(),
            counts=Counts(
                ready=ready, delivering=held, scheduled=scheduled, acked=9_000, evicted=4_060,
                added=ready + held + scheduled + gone,
            ),
            rates=QueueRates(added=added, acked=added * 0.6, evicted=evicted),
            evicted_by={"limit": 60, "overflow": 4_000}, size_bytes=ready * 312,
            oldest_ms=_now_ms() - 1_000 * (number % 400 + 3) if ready else 0,
            consumers=number % 4, paused=("dispatch",) if name == "shipping.labels" else (),
            settings={"ring_size": ring_size},
        )  # fmt: skip


def _now_ms() -> int:
    return int(time.time() * 1000)


def _details(row: QueueStatus) -> QueueDetails:
    settings = asdict(QueueSpec()) | dict(row.settings) | {"max_redrives": 3}
    consumers = tuple(
        ConsumerDetails(
            consumer=f"billing-{number}", active=True, priority=0, ack_mode="individual",
            credit=100, credit_bytes=0, unsettled=3 * number, unsettled_bytes=0, session="",
            selector="", silent_ms=1_200 + number * 9_000,
        )
        for number in range(2)
    )  # fmt: skip
    return QueueDetails(
        queue=row.queue, partition=row.partition, also_in=(),
        counts=dict.fromkeys(COUNTS, 0) | row.counts.as_dict(), settings=settings, own={},
        own_since_ms={},
        paused=row.paused, pulled=True, size_bytes=row.size_bytes,  # type: ignore[arg-type]
        oldest_ms=row.oldest_ms, consumers=consumers,
    )  # fmt: skip


async def _traced(name: str, **_: object) -> Trace:
    """The life of a message that was delivered twice and then evicted."""
    began_ms, source = _now_ms() - 900_000, "orders/0/1041"
    given = {"consumer": "billing-1", "delivery": 812, "attempt": 1}
    lines = (
        {"event": "added", "source": source, "priority": 4, "size_bytes": 96},
        {"event": "dispatched", **given},
        {"event": "returned", **given},
        {
            "event": "evicted", "reason": "return_overflow", "cause": "", "age_ms": 91_000,
            "ready": 1_001, "ring_size": 1_000, "handovers": 1,
        },
    )  # fmt: skip
    events = tuple(
        {"time_ms": began_ms + 30_000 * number, **line} for number, line in enumerate(lines)
    )
    lifecycle = Lifecycle("orders", 1041, name, source, events)
    return Trace((lifecycle,), began_ms - 2_700_000, 4_812, "")


@asynccontextmanager
async def serve_made_up(queues: int, port: int = 0) -> AsyncIterator[int]:
    """Serve the console; yield its port."""
    backend = FixedBackend([])
    status = backend.fixed.source = MadeUpStatus(queues)

    async def details(queue: str) -> QueueDetails:
        if (row := status.queue(queue)) is None:
            raise Refused("unknown_queue", queue, "no partition has this queue")
        return _details(row)

    body = (
        '{"order": %d, "customer": {"name": "Ada Lovelace", "city": "London"}, "total": 42.5, '
        '"items": ["ring", "cable <2 m>"]}'
    )
    messages = tuple(
        replace(
            message_row(f"order-{1040 + number}", (body % (1040 + number)).encode()),
            enqueued_ms=_now_ms() - 7_000 * (25 - number), due_ms=0,
            source=f"orders/0/{1040 + number}", sequence=1041 + number,
            headers={"content-type": Excerpt(start=b"application/json", size_bytes=16)},
        )
        for number in range(25)
    )  # fmt: skip
    fake = backend.fake
    fake.queue.side_effect = details
    fake.browse_page.return_value = MessagePage(messages=messages, after="25")
    held = {each.id: each for each in messages}
    fake.message.side_effect = lambda queue, name, **_: held.get(name)
    fake.xids.return_value = [
        XidDetails(
            xid="transfer-77",
            prepared=True,
            operations=4,
            began_ms=_now_ms() - 40_000,
            partitions=(0, 2),
        ),
        XidDetails(
            xid="transfer-78",
            prepared=False,
            operations=1,
            began_ms=_now_ms() - 4_000,
            partitions=(3,),
        ),
    ]
    gone = [
        GoneMessage(
            id=f"order-{943 - number}", queue="orders", reason=reason, text=said, handovers=1,
            time_ms=_now_ms() - 90_000 * number, age_ms=4_000 + 900 * number, redrives=number % 2,
            source=f"orders/0/{943 - number}", position=(0, 17 - number),
            value=Excerpt(start=(text := (body % (943 - number)).encode()), size_bytes=len(text)),
            headers=messages[0].headers,
        )
        for number, (reason, said) in enumerate((
            ("rejected", "the card was declined by the bank: insufficient funds (code 51)"),
            ("undeliverable", ""), ("expired", ""),
        ))
    ]  # fmt: skip
    redriver: AsyncMock = create_autospec(Redriver, instance=True)
    backend.redriver = redriver
    redriver.latest.return_value = gone
    redriver.at.return_value = gone[0]
    redriver.preview.return_value = Preview(
        sent=[(gone[0], "orders")], full={"orders": 1}, already_sent=1,
        refused=[("order-941", "it was redriven 3 times; max_redrives of orders is 3")],
    )  # fmt: skip
    await _remember(backend, status)
    moving = asyncio.create_task(_go_on(backend, status))
    app = web.Application()
    attach_console(app, backend, ConsoleOptions(token=TOKEN))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        with patch("ringfaust.console.message_pages.trace", _traced):
            yield runner.addresses[0][1]
    finally:
        moving.cancel()
        await runner.cleanup()


async def _remember(backend: FixedBackend, status: MadeUpStatus) -> None:
    """Make up a past for the charts, of few queues to be quick."""
    names, status._names = status._names, status._names[: len(NAMES)]
    watched = backend.board.past_of("orders")
    for step in range(_PAST):
        status.move(step)
        await backend.board.look_now()
        for past in (backend.board.past, watched):
            point = past.pop()
            past.append(point._replace(time_s=point.time_s - (_PAST - step) * _STEP_S))
    status._names = names
    backend.board.past.clear()
    share = len(names) / 2
    for point in watched:
        ready, *rates = (each and each * share for each in point[1:])
        backend.board.past.append(type(point)(point.time_s, int(ready or 0), *rates))
    status.move(_PAST)
    await backend.board.look_now()


async def _go_on(backend: FixedBackend, status: MadeUpStatus) -> None:
    step = _PAST
    while True:
        await asyncio.sleep(_STEP_S)
        step += 1
        status.move(step)
        await backend.board.look_now()


async def _main() -> None:
    async with serve_made_up(10_000, 6170) as port:
        print(f"http://127.0.0.1:{port}/console/, token {TOKEN}")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
