"""The embedded broker: a real single-node Apache Kafka for the demo, tests and first steps.

It listens on loopback only, needs no root, and ends with the process that started it, even if that
process is killed.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from ringfaust.errors import RingfaustError
from ringfaust.java.jars import KAFKA, Bundle, fetch
from ringfaust.java.runtime import Java, find_java, without_second_collector
from ringfaust.testing.process import log_tail

__all__ = ["BrokerFailed", "EmbeddedBroker", "fetch", "free_port"]

START_SECONDS = 120.0
STOP_SECONDS = 30.0
_LOG_LINES = 15
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM  # Java's exit code after an orderly shutdown

SMALL_HEAP = ("-Xmx640m", "-XX:+UseSerialGC")
"""The serial collector is small and starts quickly. It stops the broker for longer than others."""
# Only warnings and errors are logged.
_JVM = (
    "-XX:+ExitOnOutOfMemoryError",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={logs}
num.partitions={partitions}
auto.create.topics.enable=false
message.max.bytes=4194304
num.network.threads=2
num.io.threads=4
background.threads=2
log.cleaner.dedupe.buffer.size=16777216
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""

# The guard reads the broker's pid as the first line of its input. A second line announces a proper
# stop. If the input ends without it, our process has died: the guard kills the broker and removes
# its data if they are temporary. (PR_SET_PDEATHSIG would be bound to the thread that started the
# broker, not to the process.)
_GUARD = """\
read -r broker || exit
read -r goodbye || { kill -KILL "$broker"; [ -z "$1" ] || { sleep 0.2; rm -rf -- "$1"; }; }
"""
# The shell writes its own pid to the guard and then becomes Java, so the broker is always guarded.
_LAUNCH = 'echo $$; exec >>"$0" 2>&1; exec "$@"'

_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class BrokerFailed(RingfaustError):
    """The embedded broker did not start, or has ended.

    Attributes:
        log_tail: the last lines of the broker's log.
    """

    def __init__(self, what: str, log_path: Path) -> None:
        self.log_tail = log_tail(log_path, _LOG_LINES)
        text = f"The embedded broker {what}. The last lines of {log_path}:\n{self.log_tail}"
        super().__init__(text)


class BadBrokerFolder(RingfaustError):
    """The embedded broker's data folder cannot be written. Nothing was started.

    Attributes:
        folder: the data folder.
    """

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(
            f"the embedded broker's data folder {folder} cannot be used: {error.strerror}. Choose "
            "another folder with --data-dir, or with TMPDIR for temporary data."
        )
        self.folder = folder


class EmbeddedBroker:
    """A single-node Kafka broker (KRaft) on loopback. Use it in a `with` block, or start and stop.

    Args:
        data_dir: folder for the topics; None for a temporary folder that `stop` removes.
        port: the client port, which restarts keep; None for a free one.
        partitions_default: number of partitions of a topic that is created without a number.
        log_path: the broker's log file; None for `broker.log` in the data folder.
        properties: more of the broker's settings, which win over those of this class.
        bundle: the broker's jars, for another version of Kafka.
        cluster_id: of a new data folder; None for a random one. Brokers of one cluster share it.
        heap: Java's options for the broker's heap and its collector, unless the environment
            chooses one.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        partitions_default: int = 1,
        log_path: Path | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        bundle: Bundle = KAFKA,
        cluster_id: str | None = None,
        heap: Sequence[str] = SMALL_HEAP,
    ) -> None:
        self._heap = heap
        self._cluster_id = cluster_id or new_cluster_id()
        self._bundle = bundle
        self._properties = dict(properties or {})
        self._given_dir = data_dir
        self._given_log = log_path
        self._partitions = partitions_default
        self._port = port or free_port()
        self._controller_port = free_port()
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._broker: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._archive: _ClassArchive | None = None
        self._environment: dict[str, str] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, as `host:port`."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """The broker's process id; None unless it is started."""
        return self._broker.pid if self._broker else None

    def __enter__(self) -> Self:
        """Start the broker."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the broker."""
        self.stop()

    def start(self) -> None:
        """Start the broker, and return when it answers requests. Downloads Kafka if necessary.

        Raises:
            NoJava: there is no Java that is new enough.
            FetchFailed: Kafka is not in the cache and could not be downloaded.
            CacheUnusable: the cache folder cannot be written.
            BadBrokerFolder: the data folder cannot be written.
            BrokerFailed: the broker ended, or did not answer within `START_SECONDS`.
            RuntimeError: the broker is already started.
        """
        if self._broker:
            raise RuntimeError(f"the embedded broker is already running, as process {self.pid}")
        java = find_java()
        jars = fetch(self._bundle)
        if self._given_dir is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="ringfaust-kafka-")
        data_dir = self._data_dir()
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            properties = self._write_properties(data_dir)
        except OSError as error:
            self.stop()
            raise BadBrokerFolder(data_dir, error) from None
        classpath = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
        self._environment = {**os.environ, "CLASSPATH": classpath}
        archive = self._archive = _ClassArchive(jars, java)
        command = [java.path, *without_second_collector(self._heap), *_JVM]
        try:
            self._format([*command, *archive.use()], properties)
            self._launch([*command, *archive.use_or_make(), "kafka.Kafka", str(properties)])
            self._await_answer()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the broker, if possible in order, and remove its data if they are temporary."""
        self._end_processes()
        if self._temporary:
            self._temporary.cleanup()
            self._temporary = None

    def restart(self) -> None:
        """Stop the broker and start it on the same port with the same data.

        Raises:
            BrokerFailed: see `start`, whose other errors are also possible.
        """
        self._end_processes()
        self.start()

    def wait(self) -> None:
        """Wait until the broker ends by itself.

        Raises:
            BrokerFailed: it has.
        """
        assert self._broker is not None, "it is not started"
        raise BrokerFailed(f"ended with code {self._broker.wait()}", self._log_path())

    def _data_dir(self) -> Path:
        folder = self._temporary.name if self._temporary else self._given_dir
        if folder is None:
            raise RuntimeError("the embedded broker has no data folder until it is started")
        return Path(folder).absolute()

    def _log_path(self) -> Path:
        return (self._given_log or self._data_dir() / "broker.log").absolute()

    def _write_properties(self, data_dir: Path) -> Path:
        path = data_dir / "server.properties"
        text = _PROPERTIES.format(
            port=self._port,
            controller_port=self._controller_port,
            logs=json.dumps(str(data_dir / "logs"))[1:-1],  # Java reads the same escapes
            partitions=self._partitions,
        )
        more = "".join(f"{name}={value}\n" for name, value in self._properties.items())
        path.write_text(text + more, "utf-8")
        return path

    def _format(self, command: list[str], properties: Path) -> None:
        """Format a new data folder, which Kafka requires; leave one that has data as it is."""
        if (self._data_dir() / "logs" / "meta.properties").exists():
            return
        arguments = ["format", "--cluster-id", self._cluster_id, "--config", str(properties)]
        with self._log_path().open("ab") as log:
            try:
                subprocess.run(
                    [*command, "kafka.tools.StorageTool", *arguments],
                    check=True,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=START_SECONDS,
                )
            except subprocess.SubprocessError:
                raise BrokerFailed("could not format its data folder", self._log_path()) from None

    def _launch(self, command: list[str]) -> None:
        # Both run in sessions of their own: Ctrl-C reaches only us, and we stop the broker.
        temporary = self._temporary.name if self._temporary else ""
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "ringfaust-guard", temporary],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._broker = subprocess.Popen(
            ["/bin/sh", "-c", _LAUNCH, str(self._log_path()), *command],
            stdin=subprocess.DEVNULL,
            stdout=self._guard.stdin,
            env=self._environment,
            start_new_session=True,
        )

    def _await_answer(self) -> None:
        """Return when the broker answers a request."""
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self._port):
            code = self._broker.poll() if self._broker else None
            if code is not None:
                raise BrokerFailed(f"ended with code {code} while starting", self._log_path())
            if time.monotonic() > deadline:
                raise BrokerFailed(f"gave no answer for {START_SECONDS:.0f} s", self._log_path())
            time.sleep(0.02)

    def _end_processes(self) -> None:
        broker, guard = self._broker, self._guard
        self._broker = self._guard = None
        if broker:
            broker.terminate()
            try:
                broker.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                broker.kill()
                broker.wait()
        if guard:
            guard.communicate(b"goodbye\n")
        if broker and self._archive:
            self._archive.settle(whole=broker.returncode == _ENDED_BY_SIGTERM)


class _ClassArchive:
    """Java's class data archive for the broker, kept beside the jars: it halves the start time.

    The first broker that stops in order writes it, which takes two seconds; later ones read it.
    Each version of Java has its own archive. A Java that cannot use it starts without.
    """

    def __init__(self, jars: Path, java: Java) -> None:
        self._path = jars / f"classes-{java.version}.jsa"
        # Written under a unique name first, so that no other broker reads an incomplete archive.
        self._draft = jars / f"classes-{java.version}.{uuid.uuid4().hex}.draft"

    def use(self) -> list[str]:
        """Return the Java options that read the archive, if it exists."""
        return [f"-XX:SharedArchiveFile={self._path}"] if self._path.exists() else []

    def use_or_make(self) -> list[str]:
        """Return the Java options that read the archive, or else write it."""
        return self.use() or [f"-XX:ArchiveClassesAtExit={self._draft}"]

    def settle(self, *, whole: bool) -> None:
        """Keep what the broker wrote, or discard it if `whole` is false: it may be incomplete."""
        if not whole:
            self._draft.unlink(missing_ok=True)
        elif self._draft.exists():
            self._draft.replace(self._path)


def _answers(port: int) -> bool:
    """Return whether a Kafka broker on this port answers an ApiVersions request without error."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(_API_VERSIONS_REQUEST)
            answer = link.recv(10, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (1, 0)


def new_cluster_id() -> str:
    """Return a random id for a cluster."""
    # Kafka expects 16 random bytes; its tool would take a leading dash for an option.
    return "R" + secrets.token_urlsafe(16)[1:]


def free_port() -> int:
    """Return a port that is free now and below the range for outgoing connections.

    From that range, a client that tries to reconnect while the broker restarts could be given the
    broker's own port, and would then be connected to itself.
    """
    while True:
        port = random.randint(20_000, 32_000)
        with closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
