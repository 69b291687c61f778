"""What a consumer may be told, and the command that tells it to the worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ringfaust.client.connection import ConnectOptions

AckMode = Literal["auto", "client", "individual", "dups_ok", "none"]


class AttachOptions(TypedDict, total=False):
    """What a consumer wants of its queue."""

    name: str
    """Its own; no other consumer of the queue may have it. Default: host, process and chance."""
    credit: int
    """How many unsettled messages it takes at most (R10); default 100."""
    credit_bytes: int
    """And how many bytes of them; default 0: any number."""
    ack_mode: AckMode
    """Who acks, and when (R16); default `individual`: the caller, each message."""
    priority: int
    """Higher consumers are served first (R11); default 0."""
    selector: str
    """Which messages it takes (R15); default: all."""
    address: str
    """In place of a queue: the multicast address to subscribe to (R70)."""
    subscription: str
    """Name of a durable subscription, whose queue stays when the consumer goes."""
    client: str
    """Client id that the subscription's name belongs to; default: none."""
    shared: bool
    """Others may consume the subscription at the same time; default False."""
    key: str | bytes
    """Key of the ring's records, where the route makes the queue's name of it: tells where the
    queue lives before its first message is there."""
    partition: int
    """Where it lives, if you know; default: the workers are asked."""
    heartbeat_ms: int
    """How often it tells that it is alive (R13): a third of the queue's `consumer_timeout`;
    default 10,000, of 30,000."""


class ConsumerOptions(ConnectOptions, AttachOptions, total=False):
    """How a consumer is set."""


def subscription_queue(consumer: str, options: ConsumerOptions) -> str:
    """The queue of a subscription (R70)."""
    name = options.get("subscription") or consumer
    if options.get("subscription") and options.get("client"):
        name = f"{options['client']}.{name}"
    return f"{options['address']}::{name}"


def attach_command(name: str, queue: str, session: str, options: ConsumerOptions) -> dict[str, Any]:
    """What attaches it. What is not given is left out: the worker knows the defaults."""
    wanted = ("priority", "ack_mode", "selector", "credit_bytes")
    kind = ("subscribe", "address", "subscription", "client", "shared")
    given: Mapping[str, Any] = options
    return {
        "type": "attach" if queue else "subscribe",
        **({"queue": queue} if queue else {}),
        "consumer": name,
        "credit": options.get("credit", 100),
        **({"session": session} if session else {}),
        **{field: given[field] for field in (*wanted, *kind) if given.get(field)},
    }
