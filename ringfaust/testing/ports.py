"""Ports for servers that are started for a test or a benchmark."""

from __future__ import annotations

import random
import socket
from contextlib import closing


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
