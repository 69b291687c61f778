"""`ringfaust demo`: real flights through rings on a real broker, each accounted for.

The flights are read, and Kafka started, before anything asynchronous begins; `play.py` has the
course, `report.py` the last screen.
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
from ringfaust.demo.dashboard import RING_SIZE, Dashboard, DemoState, open_console
from ringfaust.demo.flights import ProducerRecord, read_flights
from ringfaust.demo.flights_run import FlightsRun, write_config
from ringfaust.demo.report import DemoResult, print_report
from ringfaust.testing.broker import EmbeddedBroker

_STOPPED = 130


def run(bootstrap_servers: str | None, limit: int | None = None) -> int:
    """Run the demo; the exit status: 0 if everything balances, else 1; 130 if it was stopped.

    Args:
        bootstrap_servers: brokers to use; without them one is started, and gone afterwards.
        limit: take only the first flights.

    Raises:
        RingfaustError: it could not be brought to its end; the message says why.
    """
    console = open_console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = DemoState(
        f"the last {RING_SIZE} departures of each carrier, as the flights of 2013 come in"
    )
    dashboard = Dashboard(console, state)
    try:
        with ThreadPoolExecutor(1) as pool:
            outcome = _play(bootstrap_servers, pool.submit(read_flights, limit), state, dashboard)
    except KeyboardInterrupt:
        what = "worker and temporary data" if bootstrap_servers else "worker, broker and all data"
        console.print(f"stopped; {what} are gone")
        return _STOPPED
    return 0 if print_report(console, outcome, dashboard.seconds()) else 1


def _play(
    servers: str | None,
    flights: Future[list[ProducerRecord]],
    state: DemoState,
    dashboard: Dashboard,
) -> DemoResult:
    with (
        tempfile.TemporaryDirectory(prefix="ringfaust-demo-") as folder,
        brokers(servers, dashboard) as address,
    ):
        # On brokers of the user's the topics have names that nobody has taken.
        application = f"flights-demo-{secrets.token_hex(3)}" if servers else "flights-demo"
        write_config(Path(folder), application, address, f"{application}.flights")
        play = FlightsRun(Path(folder), flights, state, dashboard)
        return asyncio.run(play.run(own_broker=servers is not None))


@contextmanager
def brokers(servers: str | None, dashboard: Dashboard) -> Iterator[str]:
    """The brokers' address: of those given, or of one that is started for this."""
    if servers:
        load_worker(bootstrap_servers=servers)  # tells what is wrong with them, as one given here
        yield servers
        return
    dashboard.say("starting Apache Kafka, reading the flights meanwhile")
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers
