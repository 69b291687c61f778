"""The demo: with few flights on a real broker, stopped in the middle, and with a tampered proof."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from ringfaust import demo
from ringfaust.config import WorkerConfig
from ringfaust.core.model import Counts
from ringfaust.demo.flights import extra_records, read_flights
from ringfaust.demo.report import DemoResult, faults, print_report
from ringfaust.kafka.admin import open_admin
from ringfaust.kafka.reader import read_whole
from ringfaust.protocol.records import InRecord
from ringfaust.testing.accounts.proof import Proof, QueueAccount
from ringfaust.testing.broker import EmbeddedBroker
from tests.contracts.validating import Validating
from tests.docs import recording

FLIGHTS = 3_000
DONE_SECONDS = 120

# As the command line does, but with fewer flights.
_SCRIPT = """
import logging, sys
from ringfaust.demo import run
logging.getLogger("aiokafka").addHandler(logging.NullHandler())
sys.exit(run({servers!r}, limit={limit}))
"""


class Run:
    """A demo as a process; everything it starts inherits a mark in the environment."""

    def __init__(self, temp: Path, servers: str | None = None, limit: int = FLIGHTS) -> None:
        self.temp = temp
        self.mark = f"RINGFAUST_TEST_MARK={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT.format(servers=servers, limit=limit)],
            env={**os.environ, "TMPDIR": str(temp), "PYTHONUNBUFFERED": "1", name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read_until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return
        raise AssertionError(f"the demo ended before it said {text!r}")

    def end(self) -> str:
        """Wait for the end, and return what was printed since the last read."""
        return self.process.communicate(timeout=DONE_SECONDS)[0]

    def processes_left(self) -> list[str]:
        """Return the processes with the mark that remain after five seconds."""
        deadline = time.monotonic() + 5
        while (left := self._marked()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _marked(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # the process has just ended or belongs to another user
        return found


@pytest.mark.kafka
def test_the_demo_balances_and_leaves_nothing_behind(tmp_path: Path) -> None:
    run = Run(tmp_path)
    printed = run.end()
    assert run.process.returncode == 0, printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(" departures.")]
    assert {row[0] for row in rows} >= {"departures.UA", "departures.B6", "departures.OO"}
    assert {row[-1] for row in rows} == {"yes"}
    carriers = Counter(record.key.decode() for record in read_flights(FLIGHTS))
    ua = next(row for row in rows if row[0] == "departures.UA")
    assert ua[1] == f"{carriers['UA']:,}"
    assert "3,000 flights accounted for, and 7 announcements" in printed
    assert "0 lost, 0 duplicated, 0 altered" in printed
    assert "gate-DL detached with 20 unacknowledged" in printed
    assert "Traceback" not in printed
    recorded = [text for _, text in recording.read()[1:]]
    assert recording.kinds(printed.splitlines()) == recording.kinds(recorded), "make recording"
    assert run.processes_left() == []
    assert list(tmp_path.iterdir()) == []


async def topics(broker: EmbeddedBroker) -> set[str]:
    worker = WorkerConfig(application="test", bootstrap_servers=broker.bootstrap_servers)
    async with open_admin(worker.brokers()) as admin:
        return set(await admin.names())


async def validate(broker: EmbeddedBroker, names: set[str]) -> None:
    """Each record of the control, replies and events topics is as its schema says."""
    client = {"bootstrap_servers": broker.bootstrap_servers}
    for role in ("control", "replies", "events"):
        validating = Validating(role)

        def check(records: Sequence[InRecord], validating: Validating = validating) -> None:
            for record in records:
                for line in (record.value or b"").splitlines():
                    validating(json.loads(line))

        (topic,) = (name for name in names if name.endswith(f".{role}"))
        await read_whole(client, [topic], check)
        assert validating.count > 10, role


@pytest.mark.kafka
def test_on_given_brokers_the_topics_stay_and_are_named(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    before = asyncio.run(topics(broker))
    run = Run(tmp_path, broker.bootstrap_servers)
    printed = run.end()
    assert run.process.returncode == 0, printed
    assert f"kafka-topics.sh --bootstrap-server {broker.bootstrap_servers} --delete" in printed
    asyncio.run(validate(broker, asyncio.run(topics(broker)) - before))
    assert run.processes_left() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.kafka
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_can_be_stopped_at_any_time(
    broker: EmbeddedBroker, tmp_path: Path, how: signal.Signals
) -> None:
    run = Run(tmp_path, broker.bootstrap_servers, limit=20_000)
    run.read_until("replaying")
    run.process.send_signal(how)
    printed = run.end()
    assert run.process.returncode == 130, printed
    assert printed.endswith("stopped; worker and temporary data are removed\n")
    assert "Traceback" not in printed
    assert run.processes_left() == []
    assert list(tmp_path.iterdir()) == []


# --- without I/O --------------------------------------------------------------------------------


def result(proof: Proof) -> DemoResult:
    counts = {"added": 3, "evicted": 1, "ready": 2}
    return DemoResult(
        proof=proof,
        flights=2,
        extras=1,
        held={"departures.UA": {"ready": ["2", "3"], "counts": counts}},
        evicted=Counter({"departures.UA": 1}),
        application="flights-demo",
        servers="127.0.0.1:9092",
        given_brokers=False,
    )


def balanced_proof() -> Proof:
    row = QueueAccount("departures.UA", Counts(added=3, evicted=1, ready=2))
    return Proof(accounts={row.queue: row}, inputs=3)


def test_a_balanced_proof_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_report(Console(width=100), result(balanced_proof()), 1.0)
    printed = capsys.readouterr().out
    assert "2 flights accounted for" in printed
    assert "NO" not in printed.split()


def test_a_tampered_proof_makes_the_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = balanced_proof()
    proof.duplicated.append("flights/0/7")
    monkeypatch.setattr(demo, "_play", lambda *_: result(proof))
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert demo.run(None, limit=1) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    printed = capsys.readouterr().out
    assert "The accounts do not balance" in printed
    assert "1 record with more than one outcome: flights/0/7" in printed
    assert "accounted for," not in printed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"flights": 3}, "4 records were sent, 3 are in the input topic"),
        ({"evicted": Counter()}, "the plain Kafka consumer read 0 evicted records, the proof 1"),
        (
            {"held": {"departures.UA": {"counts": {"added": 4}}}},
            "the worker counts added 4, the topics 3",
        ),
    ],
)
def test_a_disagreement_is_named(change: dict[str, object], reason: str) -> None:
    (text,) = faults(result(balanced_proof())._replace(**change))  # type: ignore[arg-type]
    assert reason in text


def test_flights_are_keyed_by_carrier() -> None:
    (first,) = read_flights(1)
    assert first.key == b"UA"
    assert first.value.startswith(b'{"year":2013,"month":1,"day":1,"dep_time":517,')


def test_all_flights_are_json_and_missing_fields_are_null() -> None:
    flights = [json.loads(record.value) for record in read_flights(1_000)]
    cancelled = [flight for flight in flights if flight["dep_time"] is None]
    assert cancelled
    assert all(isinstance(flight["sched_dep_time"], int) for flight in flights)


def test_one_announcement_expires_and_one_stays_scheduled() -> None:
    names = [name for record in extra_records("OO") for name, _ in record.headers]
    assert names.count("ringfaust-ttl-ms") == 1
    assert names.count("ringfaust-delay-ms") == 6
