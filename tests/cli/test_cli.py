"""The command line as a new user sees it: help, clear errors, exit statuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, MessageSizeTooLargeError
from typer.testing import CliRunner

import ringfaust
from ringfaust.cli import topics
from ringfaust.cli.main import main
from ringfaust.config import load
from ringfaust.config.topics import TopicFinding, TopicProblem, wanted_topics
from ringfaust.errors import RingfaustError
from ringfaust.kafka.admin import ExistingTopic
from ringfaust.testing.broker import EmbeddedBroker

COMMANDS = (
    "queue", "message", "consumer", "xid", "trace", "worker", "topics", "config",
    "scenario", "demo", "broker", "version",
)  # fmt: skip
DOWN = ("--bootstrap-servers", "127.0.0.1:9")


def run(*arguments: str):
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def module(monkeypatch):
    """Replaces a module that a command imports, and records the calls of its `run`."""

    def _module(name: str, answer: object = None):
        calls = []

        def _run(*arguments):
            calls.append(arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer

        fake = ModuleType(name)
        fake.run = _run
        monkeypatch.setitem(sys.modules, name, fake)
        return calls

    return _module


def test_a_body_may_be_any_bytes():
    assert "No Kafka broker answers" in run("send", "orders", "\udcff", "--yes", *DOWN).stderr


def test_help_lists_every_command():
    shown = run("--help")
    assert shown.exit_code == 0
    assert all(f"\n  {command} " in shown.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", [*COMMANDS, "topics plan", "topics create", "topics verify"])
def test_each_command_has_help(command):
    assert run(*command.split(), "--help").exit_code == 0


def test_help_imports_nothing_slow():
    code = (
        "import sys; sys.argv = ['ringfaust', '--help']\n"
        "from ringfaust.cli.main import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    slow = {"pydantic", "yaml", "rich", "aiokafka", "faust", "rocksdict", "asyncio"}
    assert not slow & set(result.stderr.split())


def test_python_dash_m_does_the_same():
    result = subprocess.run(
        [sys.executable, "-m", "ringfaust", "version"], capture_output=True, text=True, check=True
    )
    first = result.stdout.splitlines()[0]
    assert first == f"{ringfaust.__version__} ({ringfaust.compiled.KIND})"


def test_the_shipped_configuration_is_valid():
    checked = run("config", "check")
    assert checked.exit_code == 0
    assert "orders -> orders, through the hop" in checked.stdout


@pytest.mark.parametrize("command", ["config check", "worker", "topics plan", "topics verify"])
def test_a_mistake_is_reported_with_its_line_and_a_suggestion(command, tmp_path):
    (tmp_path / "queues.yaml").write_text("queues:\n  orders: {ring_sise: 5}\n")
    failed = run(*command.split(), "--config", str(tmp_path))
    assert failed.exit_code == 2
    assert failed.stdout == ""
    assert "queues.yaml cannot be used:\n  line 2, queues.orders.ring_sise" in failed.stderr
    assert "did you mean 'ring_size'?" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_missing_folder_is_reported(tmp_path):
    failed = run("config", "check", "--config", str(tmp_path / "none"))
    assert failed.exit_code == 2
    assert "not a folder; it should contain queues.yaml" in failed.stderr


@pytest.mark.parametrize("command", ["plan", "create", "verify"])
def test_a_broker_that_is_down_is_reported_in_one_line(command):
    started = time.monotonic()
    failed = run("topics", command, *DOWN)
    assert time.monotonic() - started < 5
    assert failed.exit_code == 2
    assert failed.stderr.startswith("ringfaust: No Kafka broker answers at 127.0.0.1:9: ")
    assert failed.stderr.count("\n") == 1


def test_a_real_process_prints_nothing_else():
    result = subprocess.run(
        [sys.executable, "-m", "ringfaust", "topics", "verify", *DOWN],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1


def test_an_unknown_command_or_option_is_refused():
    assert run("wroker").exit_code == 2
    assert run("worker", "--partitions", "3").exit_code == 2


def test_the_worker_receives_both_configurations(module, tmp_path):
    calls = module("ringfaust.worker.app")
    assert run("worker", *DOWN, "--data-dir", str(tmp_path)).exit_code == 0
    ((worker, queues, *others),) = calls
    assert others == [None, None]  # no pages, and no supervisor
    assert (worker.bootstrap_servers, worker.data_dir) == ("127.0.0.1:9", tmp_path)
    assert list(queues.queues) == ["orders"]


def test_an_error_while_running_is_printed_as_one_message(module):
    module("ringfaust.worker.app", RingfaustError("the sky fell; hold it up"))
    failed = run("worker")
    assert failed.exit_code == 2
    assert failed.stderr == "ringfaust: the sky fell; hold it up\n"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "Permission denied", "/data"), "/data: Permission denied"),
        (OSError(28, "No space left on device"), "the disk: No space left on device"),
        (
            UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed"),
            r"'\udcff' cannot be written as utf-8: use UTF-8",
        ),
        (KafkaTimeoutError("a"), "the Kafka brokers failed: KafkaTimeoutError; try again"),
        (TimeoutError(), "no answer in time: check that the brokers run, and try again"),
        (
            MessageSizeTooLargeError("a"),
            "a message is larger than 1 MiB, or than its topic takes: max.message.bytes",
        ),
        (
            KafkaConnectionError("a"),
            "no Kafka broker answers: check bootstrap_servers in worker.yaml or "
            "--bootstrap-servers, and `security`",
        ),
    ],
)
def test_a_failing_file_or_broker_is_printed_as_one_message(module, error, text):
    module("ringfaust.worker.app", error)
    failed = run("worker")
    assert (failed.exit_code, failed.stderr) == (2, f"ringfaust: {text}\n")


def test_a_bug_keeps_its_traceback(module):
    module("ringfaust.worker.app", ValueError("a bug"))
    assert isinstance(run("worker").exception, ValueError)


def test_a_restore_with_another_number_of_partitions_is_refused(monkeypatch):
    async def is_refused(*_):
        return None, [TopicProblem("in", "partitions", "error", "Topic in has 4 partitions.")]

    async def none_runs(_): ...

    monkeypatch.setattr("ringfaust.config.applied.checked_configuration", is_refused)
    monkeypatch.setattr("ringfaust.cli.restoring._refuse_running", none_runs)
    refused = run("restore", "--yes")
    assert refused.exit_code == 2
    assert refused.stderr == "ringfaust: Topic in has 4 partitions. Nothing was changed\n"


def test_scenario_and_demo_pass_on_their_options_and_return_the_status(module):
    calls = module("ringfaust.cli.scenario", 1)
    assert run("scenario", "a.yaml", "b.yaml", "--host", "faust", "--strict", *DOWN).exit_code == 1
    assert run("scenario", "a.yaml").exit_code == 1
    files = [Path("a.yaml"), Path("b.yaml")]
    assert calls == [(files, "faust", True, DOWN[1]), (files[:1], "memory", False, None)]
    assert run("scenario", "a.yaml", "--host", "mars").exit_code == 2
    calls = module("ringfaust.demo", 0)
    assert run("demo").exit_code == run("demo", *DOWN).exit_code == 0
    assert calls == [(None,), (DOWN[1],)]


def test_a_port_that_is_in_use_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        failed = run("broker", "--port", str(taken.getsockname()[1]))
    assert failed.exit_code == 2
    assert "is in use" in failed.stderr


@pytest.mark.timeout(20)
def test_a_broker_that_dies_ends_the_command(monkeypatch, tmp_path):
    def start(self):
        self._broker = subprocess.Popen(["/bin/sh", "-c", "exit 3"])

    monkeypatch.setattr(EmbeddedBroker, "start", start)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the handler is this process's, too
    failed = run("broker", "--data-dir", str(tmp_path))
    assert failed.exit_code == 2
    assert "The embedded broker ended with code 3" in failed.stderr


@pytest.mark.kafka
def test_topics_are_planned_created_and_verified(broker: EmbeddedBroker, tmp_path):
    (tmp_path / "queues.yaml").write_text(
        "routes: [{topic: cli-in, queue: orders}]\nqueues: {orders: }\n"
    )
    (tmp_path / "worker.yaml").write_text("application: cli\npartitions: 2\n")
    options = ("--config", str(tmp_path), "--bootstrap-servers", broker.bootstrap_servers)
    plan = run("topics", "plan", *options)
    assert plan.exit_code == 0
    assert "0 as declared, 11 missing, 0 different" in plan.stdout
    verify = run("topics", "verify", *options)
    assert verify.exit_code == 1
    assert verify.stdout.count("error  Topic") == 9
    create = run("topics", "create", *options)
    assert create.exit_code == 0
    assert "created cli.changelog" in create.stdout
    again = run("topics", "create", *options).stdout
    assert again.startswith("all topics exist already\nwarning  queue orders gets the records of 2")
    verify = run("topics", "verify", *options)
    assert (verify.exit_code, verify.stdout) == (0, "a worker of cli can run with these topics\n")
    (tmp_path / "worker.yaml").write_text("application: cli\npartitions: 3\n")
    assert "1 as declared, 0 missing, 10 different" in run("topics", "plan", *options).stdout
    verify = run("topics", "verify", *options)
    assert verify.exit_code == 1
    create = run("topics", "create", *options)
    assert create.exit_code == 1
    assert create.stdout.startswith("all topics exist already")
    assert create.stdout.endswith(verify.stdout)


@pytest.mark.kafka
def test_the_broker_runs_in_the_foreground_until_it_is_stopped():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-u", "-m", "ringfaust", "broker", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(
            f"a Kafka broker is running at 127.0.0.1:{port}; "
        )
        assert run("topics", "plan", "--bootstrap-servers", f"127.0.0.1:{port}").exit_code == 0
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout.read() == "stopped\n"
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize(("severity", "status"), [("error", 1), ("warning", 0)])
def test_topics_as_json_name_every_problem(severity, status, monkeypatch):
    absent, odd, *_ = wanted_topics(*load())
    problem = TopicProblem(odd.name, "cleanup", severity, "it is compacted")
    there = ExistingTopic(4, {}, 1, 1)

    async def compare(*_):
        missing = TopicProblem(absent.name, "missing", "error", "it is missing")
        return [TopicFinding(absent, None, (missing,)), TopicFinding(odd, there, (problem,))]

    async def check(*_):
        return [problem]

    monkeypatch.setattr(topics, "compare_topics", compare)
    monkeypatch.setattr(topics, "check_topics", check)
    planned = run("topics", "plan", "--json")
    assert planned.exit_code == 0
    rows = json.loads(planned.stdout)
    found = {each["topic"]: (each["state"], *each["differences"]) for each in rows}
    assert found == {absent.name: ("missing",), odd.name: ("different", "cleanup")}
    table = run("topics", "plan", "--bootstrap-servers", "[fe80::1]:9092").stdout
    assert "[fe80::1]:9092" in table
    assert "0 as declared, 1 missing, 1 different" in table
    assert "different: cleanup" in table
    verified = run("topics", "verify", "--json")
    assert verified.exit_code == status
    assert json.loads(verified.stdout) == [
        {"topic": odd.name, "what": "cleanup", "severity": severity, "text": "it is compacted"}
    ]
