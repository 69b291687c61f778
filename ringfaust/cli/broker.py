"""`ringfaust broker`: the embedded broker in the foreground."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import typer

from ringfaust.errors import RingfaustError
from ringfaust.testing.broker import EmbeddedBroker


class PortTaken(RingfaustError):
    """Something listens where the broker should: stop it, or choose another port.

    Attributes:
        port: the port on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} of 127.0.0.1 is taken; is a broker running there already? Choose another "
            "with --port."
        )
        self.port = port


def run(port: int, data_dir: Path | None) -> None:
    """Run a broker until SIGINT or SIGTERM.

    Raises:
        PortTaken: something listens there.
        BrokerFailed: it does not start; the end of its log is told.
    """
    _refuse_taken(port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with EmbeddedBroker(data_dir, port) as broker:
            kept = f"topics are kept in {data_dir}" if data_dir else "topics are lost at its end"
            typer.echo(f"a Kafka broker runs at {broker.bootstrap_servers}; {kept}; Ctrl-C ends it")
            while True:
                signal.pause()
    except KeyboardInterrupt:
        typer.echo("stopped")


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise PortTaken(port) from None
