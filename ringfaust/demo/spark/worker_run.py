"""The worker's part of the demo: first all flights pass through the rings, then consumers attach.

So the evictions depend on the flights alone, and a job without consumers has to evict the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from aiokafka import AIOKafkaProducer

from ringfaust.config import load
from ringfaust.demo.consumers import ClosingConsumer, DemoConsumer, MixedConsumer, attach_all
from ringfaust.demo.control_client import ControlClient
from ringfaust.demo.dashboard import Dashboard
from ringfaust.demo.flights import ProducerRecord, replay
from ringfaust.demo.flights_run import (
    PARTITIONS,
    running_worker,
    until,
    watch_counts,
    watch_through,
)
from ringfaust.demo.task_scope import StartTask

_ENOUGH_ACKED = 15
"""How many acks a consumer does before it stops to settle."""


class WorkerRun:
    """One run of a worker, from its start until it is idle.

    Args:
        folder: has the configuration; the topics exist.
        flights: the flights to send.
        dashboard: shows the progress.
        log: file for the worker's log.
    """

    def __init__(
        self, folder: Path, flights: list[ProducerRecord], dashboard: Dashboard, log: Path
    ) -> None:
        self._folder = folder
        self._config, queues = load(folder)
        self._topic = queues.routes[0].topic
        self._flights = flights
        self._dashboard = dashboard
        self._log = log

    async def run(self) -> None:
        """Start the worker, send the flights, have consumers settle some, and stop the worker.

        Raises:
            RingfaustError: the run could not complete; the text says why.
            KafkaError: the brokers stopped answering.
        """
        running = running_worker(self._folder, self._log, self._dashboard)
        async with running as (start, producer, control):
            await self._send(start, producer, control)
            await self._take(start, control)

    async def _send(
        self, start: StartTask, producer: AIOKafkaProducer, control: ControlClient
    ) -> None:
        state = self._dashboard.state
        state.total, state.phase = len(self._flights), "by the worker"
        queues = sorted({f"departures.{flight.key.decode()}" for flight in self._flights})
        await control.listing(queues[0], 0)  # the reply shows that the worker is up
        start(watch_counts(control, queues, state))
        start(watch_through(self._config, self._topic, state))
        await replay(producer, self._topic, PARTITIONS, self._flights)

        async def all_through() -> bool:
            return state.through >= state.total

        await until("the worker has processed all flights", all_through, lambda: state.through)
        self._dashboard.say(f"all {state.total:,} flights are through the worker's rings")

    async def _take(self, start: StartTask, control: ControlClient) -> None:
        """Attach consumers that settle some deliveries and leave the others unsettled."""
        say = self._dashboard.say
        closing = ClosingConsumer(control, "departures.DL", say)
        settling = [
            DemoConsumer(control, "departures.UA", say),
            MixedConsumer(control, "departures.B6", say),
        ]
        consumers = [closing, *settling]
        await attach_all(consumers, start)

        async def enough() -> bool:
            return closing.is_idle and min(await _acked(control, settling)) >= _ENOUGH_ACKED

        await until("consumers have acknowledged enough", enough)
        for consumer in consumers:
            consumer.stop_settling()
        acked = sum(await _acked(control, settling))  # the reply follows all settles
        say(f"{acked} flights acknowledged, some left unsettled; the worker stops")


async def _acked(control: ControlClient, consumers: Collection[DemoConsumer]) -> list[int]:
    listings = await asyncio.gather(*(control.listing(consumer.queue, 0) for consumer in consumers))
    return [listed["counts"]["acked"] for listed in listings]
