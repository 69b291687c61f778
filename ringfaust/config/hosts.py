"""Whom a web page answers: requests that are addressed to this machine by a name of its own."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

REFUSAL = (
    "This page answers only to addresses, localhost, this machine's name, and the names under "
    "web.hosts in worker.yaml.\n"
)


def is_our_host(host: str, bind: str, hosts: Collection[str]) -> bool:
    """Whether a `Host` header names this machine.

    A web site can make its own name resolve to our address (DNS rebinding). It cannot do so with an
    address itself, with `localhost`, or with a name that is ours.

    Args:
        host: the header.
        bind: where the page listens.
        hosts: the other names of this machine and of the proxies before it, in lower case.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {"localhost", bind.lower(), socket.gethostname().lower(), *hosts}
    return True
