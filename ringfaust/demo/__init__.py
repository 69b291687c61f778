"""`ringfaust demo`: sends real flights through rings on a real broker, and accounts for each.

This module reads the flights and starts Kafka. `flights_run` drives the demo, and `report` prints
the final screen.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ringfaust.config import load_worker
from ringfaust.config.environment import drop_variables
from ringfaust.demo.dashboard import RING_SIZE, Dashboard, DemoState, open_console
from ringfaust.demo.flights import ProducerRecord, find_flights, read_flights
from ringfaust.demo.flights_run import FlightsRun, write_config
from ringfaust.demo.report import DemoResult, print_report
from ringfaust.testing.broker import EmbeddedBroker

_STOPPED = 130


def run(bootstrap_servers: str | None, limit: int | None = None) -> int:
    """Run the demo.

    Args:
        bootstrap_servers: the brokers to use; None starts one and removes it afterwards.
        limit: how many flights to send; None for all.

    Returns:
        The exit status: 0 if everything balances, 1 if not, 130 if the demo was stopped.

    Raises:
        RingfaustError: the demo could not complete; the text says why.
    """
    find_flights()  # before the broker is started
    drop_variables()
    console = open_console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    title = f"the last {RING_SIZE} departures of each carrier, as the flights of 2013 arrive"
    dashboard = Dashboard(console, DemoState(title))
    try:
        with ThreadPoolExecutor(1) as pool:
            result = _play(bootstrap_servers, pool.submit(read_flights, limit), dashboard)
    except KeyboardInterrupt:
        what = "worker and temporary data" if bootstrap_servers else "worker, broker and all data"
        console.print(f"stopped; {what} are removed")
        return _STOPPED
    return 0 if print_report(console, result, dashboard.seconds()) else 1


def _play(
    servers: str | None, flights: Future[list[ProducerRecord]], dashboard: Dashboard
) -> DemoResult:
    with (
        tempfile.TemporaryDirectory(prefix="ringfaust-demo-") as folder,
        brokers(servers, dashboard) as address,
    ):
        # On the user's brokers the topics get unused names.
        application = f"flights-demo-{secrets.token_hex(3)}" if servers else "flights-demo"
        write_config(Path(folder), application, address, f"{application}.flights")
        play = FlightsRun(Path(folder), flights, dashboard)
        return asyncio.run(play.run(given_brokers=servers is not None))


@contextmanager
def brokers(servers: str | None, dashboard: Dashboard) -> Iterator[str]:
    """Yield the address of the given brokers or, without any, of one started for the block."""
    if servers:
        load_worker(bootstrap_servers=servers)  # reports an invalid address as an option's error
        yield servers
        return
    dashboard.say("starting Apache Kafka and reading the flights")
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers
