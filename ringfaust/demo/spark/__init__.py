"""`ringfaust spark demo`: flights by the worker and by the job on Spark, audited and compared.

Spark runs in the commands that a user would type, each shown before it runs. `play.py` has the
worker's part, `compare.py` what both evicted.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import tempfile
from pathlib import Path

from ringfaust.demo import brokers
from ringfaust.demo.dashboard import RING_SIZE, Dashboard, DemoState, open_console
from ringfaust.demo.flights import ProducerRecord, read_flights
from ringfaust.demo.flights_run import write_config
from ringfaust.demo.spark.commands import CommandRunner
from ringfaust.demo.spark.compare import compare
from ringfaust.demo.spark.result import print_result
from ringfaust.demo.spark.worker_run import WorkerRun
from ringfaust.errors import BadSetting
from ringfaust.java.jars import SPARK, fetch
from ringfaust.java.runtime import find_java

_STOPPED = 130
_WORKER, _JOB = "by-worker", "by-job"
"""Folders with the configuration of an application each; both read the same flights."""


def run(bootstrap_servers: str | None, flights: str, report: Path) -> int:
    """Run the demo; the exit status: 0 if all is equal and balances, else 1; 130 if stopped.

    Args:
        bootstrap_servers: brokers to use; without them one is started, and gone afterwards.
        flights: how many of the year's first flights, or `all`.
        report: folder that keeps the audit's report, and a log of what all commands said.

    Raises:
        BadSetting: `flights` is neither.
        RingfaustError: it could not be brought to its end; the message says why.
    """
    limit = _read_limit(flights)
    find_java()
    fetch(SPARK)  # here it shows progress; what the commands say goes to the log
    report = report.absolute()
    report.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = open_console()
    dashboard = Dashboard(
        console, DemoState(f"the last {RING_SIZE} departures of each carrier, by the worker")
    )
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ringfaust-demo-") as folder,
            brokers(bootstrap_servers, dashboard) as servers,
        ):
            # On brokers of the user's the topics have names that nobody has taken.
            name = f"flights-demo-{secrets.token_hex(3)}" if bootstrap_servers else "flights-demo"
            commands = CommandRunner(dashboard, Path(folder), report / "demo.log")
            right = _course(commands, name, servers, _numbered(read_flights(limit)), report)
    except KeyboardInterrupt:
        console.print("stopped; worker, jobs and temporary data are gone")
        return _STOPPED
    return 0 if right else 1


def _course(
    commands: CommandRunner,
    application: str,
    servers: str,
    flights: list[ProducerRecord],
    report: Path,
) -> bool:
    """The flights by the worker, lake, audit, the flights by the job; whether all is right."""
    dashboard, folder = commands.dashboard, commands.folder
    topic = f"{application}.flights"
    for name, owner in ((_WORKER, application), (_JOB, f"{application}-job")):
        folder.joinpath(name).mkdir()
        write_config(folder / name, owner, servers, topic)
        commands.run("topics", "create", "--config", name)
    commands.show("worker", "--config", _WORKER)
    asyncio.run(WorkerRun(folder / _WORKER, flights, dashboard, commands.log).run())
    lake = str(folder / "lake")
    commands.run("spark", "lake", "--config", _WORKER, "--to", lake, "--once")
    audit = commands.run(
        "spark", "audit", "--config", _WORKER, "--lake", lake, "--report", str(report),
        verdict=True,
    )  # fmt: skip
    dashboard.console.print(audit.stdout, markup=False, highlight=False, soft_wrap=True)
    commands.run("spark", "ring", "--config", _JOB, "--checkpoint", "checkpoint", "--once")
    dashboard.say("reading back what both evicted")
    comparison = asyncio.run(compare(folder / _WORKER, folder / _JOB, flights))
    return print_result(dashboard, comparison, balanced=audit.returncode == 0, report=report)


def _read_limit(flights: str) -> int | None:
    if flights == "all":
        return None
    if not (flights.isascii() and flights.isdigit() and int(flights)):
        raise BadSetting("flights", flights, "write a number such as 60000, or all")
    return int(flights)


def _numbered(flights: list[ProducerRecord]) -> list[ProducerRecord]:
    """With a header of the producer's own, which has to come out as it went in."""
    return [
        flight._replace(headers=(("flight-of-the-year", b"%d" % number),))
        for number, flight in enumerate(flights, 1)
    ]
