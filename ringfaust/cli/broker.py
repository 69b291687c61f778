"""`ringfaust broker`: run the embedded broker in the foreground."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from ringfaust.cli.operate import say
from ringfaust.errors import RingfaustError
from ringfaust.java import KafkaVersion
from ringfaust.java.jars import kafka
from ringfaust.testing.broker import EmbeddedBroker


class PortInUse(RingfaustError):
    """Something already listens on the broker's port. Stop it or choose another port.

    Attributes:
        port: the port on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} on 127.0.0.1 is in use, perhaps by another broker. Choose another port "
            "with --port."
        )
        self.port = port


def run(port: int, data_dir: Path | None, kafka_version: KafkaVersion) -> None:
    """Run a broker until SIGINT or SIGTERM.

    Raises:
        PortInUse: something already listens on the port.
        BrokerFailed: the broker does not start, or ends; the error ends with its log.
    """
    _check_port(port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with EmbeddedBroker(data_dir, port, bundle=kafka(kafka_version)) as broker:
            kept = f"topics are kept in {data_dir}" if data_dir else "topics are deleted at exit"
            say(
                f"a Kafka broker is running at {broker.bootstrap_servers}; {kept}; "
                "press Ctrl-C to stop it"
            )
            broker.wait()
    except KeyboardInterrupt:
        say("stopped")


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise PortInUse(port) from None
