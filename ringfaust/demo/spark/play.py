"""The worker's part: all flights through the rings first, and only then gates that take some.

So what is evicted depends on the flights alone, and a job that never hears of the gates has to
evict the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from aiokafka import AIOKafkaProducer

from ringfaust.config import load
from ringfaust.demo.background import Start, background
from ringfaust.demo.consumers import ClosingConsumer, DemoConsumer, EvictedReader, WaveringConsumer
from ringfaust.demo.control_client import ControlClient
from ringfaust.demo.dashboard import Dashboard
from ringfaust.demo.flights import Record, replay
from ringfaust.demo.play import (
    BATCH_BYTES,
    PARTITIONS,
    until,
    watch_counts,
    watch_through,
    watch_worker,
)
from ringfaust.testing.process import WorkerProcess

_ENOUGH_ACKED = 15
"""Then a gate keeps what it has in hand."""


class Play:
    """One run of a worker, from its start until all is at rest.

    Args:
        folder: has the configuration; the topics are made.
        flights: to be sent.
        board: shows it.
        log: file that takes what the worker says.
    """

    def __init__(self, folder: Path, flights: list[Record], board: Dashboard, log: Path) -> None:
        self._folder = folder
        self._config, queues = load(folder)
        self._topic = queues.routes[0].topic
        self._flights = flights
        self._board = board
        self._log = log

    async def run(self) -> None:
        """Start the worker, send the flights, have gates take some, stop the worker.

        Raises:
            RingfaustError: it could not be brought to its end.
            KafkaError: the brokers stopped to answer.
        """
        servers, application = self._config.bootstrap_servers, self._config.application
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, max_batch_size=BATCH_BYTES
        )
        worker = WorkerProcess(self._folder, self._log)
        worker.start()
        try:
            async with producer, background() as start:
                desk = ControlClient(servers, application, producer)
                reader = EvictedReader(servers, application)
                self._board.scene.evicted = reader.by_queue
                for work in (watch_worker(worker), self._board.show(), desk.read(), reader.read()):
                    start(work)
                await self._send(start, producer, desk)
                await self._take(start, desk)
        finally:
            worker.stop()

    async def _send(self, start: Start, producer: AIOKafkaProducer, desk: ControlClient) -> None:
        scene = self._board.scene
        scene.total, scene.phase = len(self._flights), "by the worker"
        queues = sorted({f"departures.{flight.key.decode()}" for flight in self._flights})
        await desk.listing(queues[0], 0)  # the answer tells that the worker is up
        start(watch_counts(desk, queues, scene))
        start(watch_through(self._config, self._topic, scene))
        await replay(producer, self._topic, PARTITIONS, self._flights)

        async def all_through() -> bool:
            return scene.through >= scene.total

        await until("the worker has read all flights", all_through, lambda: scene.through)
        self._board.say(f"all {scene.total:,} flights are through the worker's rings")

    async def _take(self, start: Start, desk: ControlClient) -> None:
        """Gates come, settle some of what they are handed, and keep or leave the rest."""
        say = self._board.say
        closing = ClosingConsumer(desk, "departures.DL", say)
        settling = [
            DemoConsumer(desk, "departures.UA", say),
            WaveringConsumer(desk, "departures.B6", say),
        ]
        gates = [closing, *settling]
        await asyncio.gather(*(gate.attach() for gate in gates))
        for gate in gates:
            start(gate.serve())
            start(gate.stay_alive())

        async def enough() -> bool:
            return closing.at_rest and min(await _acked(desk, settling)) >= _ENOUGH_ACKED

        await until("gates have acknowledged enough", enough)
        for gate in gates:
            gate.rest()
        acked = sum(await _acked(desk, settling))  # comes behind all that the gates said
        say(f"{acked} flights acknowledged, some left in hand; the worker stops")


async def _acked(desk: ControlClient, gates: Collection[DemoConsumer]) -> list[int]:
    listings = await asyncio.gather(*(desk.listing(gate.queue, 0) for gate in gates))
    return [listed["counts"]["acked"] for listed in listings]
