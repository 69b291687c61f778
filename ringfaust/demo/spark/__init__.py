"""`ringfaust spark demo`: the same flights through a worker and through the Spark job, compared.

Spark runs in the commands that a user would type; each is shown before it runs. `worker_run` runs
the worker, and `compare` compares what both evicted.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import tempfile
from pathlib import Path

import pyspark

from ringfaust.config.environment import drop_variables
from ringfaust.demo import brokers
from ringfaust.demo.dashboard import RING_SIZE, Dashboard, DemoState, open_console
from ringfaust.demo.flights import ProducerRecord, find_flights, read_flights
from ringfaust.demo.flights_run import write_config
from ringfaust.demo.spark.commands import CommandRunner
from ringfaust.demo.spark.compare import compare
from ringfaust.demo.spark.result import print_result
from ringfaust.demo.spark.worker_run import WorkerRun
from ringfaust.errors import BadSetting
from ringfaust.java.jars import fetch, spark_connectors
from ringfaust.java.runtime import find_java

_STOPPED = 130
_WORKER, _JOB = "by-worker", "by-job"
"""Folders with the configurations of two applications that read the same flights."""


def run(bootstrap_servers: str | None, flights: str, report: Path) -> int:
    """Run the demo.

    Args:
        bootstrap_servers: the brokers to use; None starts one and removes it afterwards.
        flights: how many of the year's first flights to send, or `all`.
        report: folder for the audit's report and a log of the commands' output.

    Returns:
        The exit status: 0 if everything is equal and balances, 1 if not, 130 if it was stopped.

    Raises:
        BadSetting: `flights` is neither a number nor `all`.
        RingfaustError: the demo could not complete; the text says why.
    """
    limit = _read_limit(flights)
    find_flights()
    find_java()
    fetch(
        spark_connectors(pyspark.__version__)
    )  # shows its progress here; in the commands it would go to the log
    drop_variables()
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
            # On the user's brokers the topics get unused names.
            name = f"flights-demo-{secrets.token_hex(3)}" if bootstrap_servers else "flights-demo"
            commands = CommandRunner(dashboard, Path(folder), report / "demo.log")
            is_equal = _run_steps(commands, name, servers, _numbered(read_flights(limit)), report)
    except KeyboardInterrupt:
        console.print("stopped; worker, jobs and temporary data are removed")
        return _STOPPED
    return 0 if is_equal else 1


def _run_steps(
    commands: CommandRunner,
    application: str,
    servers: str,
    flights: list[ProducerRecord],
    report: Path,
) -> bool:
    """Run the worker, the lake, the audit and the job; return whether everything is equal."""
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
    dashboard.say("reading the evicted records of both")
    comparison = asyncio.run(compare(folder / _WORKER, folder / _JOB, flights))
    return print_result(dashboard, comparison, balanced=audit.returncode == 0, report=report)


def _read_limit(flights: str) -> int | None:
    if flights == "all":
        return None
    if not (flights.isascii() and flights.isdigit() and int(flights)):
        raise BadSetting("flights", flights, "must be a number such as 60000, or all")
    return int(flights)


def _numbered(flights: list[ProducerRecord]) -> list[ProducerRecord]:
    """Add a producer's own header to each flight, which must come out unaltered."""
    return [
        flight._replace(headers=(("flight-of-the-year", b"%d" % number),))
        for number, flight in enumerate(flights, 1)
    ]
