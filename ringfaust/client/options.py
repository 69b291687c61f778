"""The options of a consumer, and the command that attaches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from ringfaust.client.connection import ConnectOptions
from ringfaust.client.errors import BadArgument

AckMode = Literal["auto", "client", "individual", "dups_ok", "none"]


class SubscriberOptions(TypedDict, total=False):
    """Options that say what a consumer attaches to and which messages it gets."""

    name: str
    """The consumer's name, unique within its queue; default: host name, process id and a random
    part."""
    credit: int
    """How many unsettled messages it may hold (R10). Default: 100; for a handler: how many of them
    it handles at a time."""
    credit_bytes: int
    """How many bytes of unsettled messages it may hold; default 0, no limit."""
    priority: int
    """Consumers of a higher priority are served first (R11); default 0."""
    selector: str
    """Which messages it takes (R15); default all."""
    address: str
    """The multicast address to subscribe to, instead of a queue (R70)."""
    subscription: str
    """The name of a durable subscription; its queue stays when the consumer detaches."""
    client: str
    """The client id that qualifies the subscription's name; default none."""
    shared: bool
    """Whether other consumers may use the subscription at the same time; default False."""
    key: str | bytes
    """The key of the queue's records, if the route names the queue after it and does not
    repartition: finds the queue's partition before its first message arrives."""
    partition: int
    """The queue's partition, if it is known; by default the workers are asked."""
    heartbeat_ms: int
    """Longest time between two heartbeats (R13), in milliseconds; default 10,000. The client sends
    them more often if a third of the queue's `consumer_timeout_ms` is shorter."""


class AttachOptions(SubscriberOptions, total=False):
    """Options for attaching a consumer, with those of `SubscriberOptions`."""

    ack_mode: AckMode
    """Who acks, and when (R16); default `individual`: the program acks each message."""
    deserializer: Callable[[bytes], Any]
    """Reads the value of a message for `Message.body`; default: the bytes as they are."""


class ConsumerOptions(ConnectOptions, AttachOptions, total=False):
    """All options of a consumer."""


def held_by_handler(options: SubscriberOptions, handled: int, name: str) -> SubscriberOptions:
    """Return the options with the credit of a handler.

    Args:
        options: as given. What is held and not handled yet waits in this process.
        handled: how many messages the handler handles at a time.
        name: of that argument, for the error.

    Raises:
        BadArgument: it handles none, or more than it may hold.
    """
    if handled < 1:
        raise BadArgument(f"{name} must be 1 or more, not {handled}")
    credit = options.get("credit", handled)
    if credit < handled:
        raise BadArgument(f"credit must be {handled} or more, like {name}, not {credit}")
    return {**options, "credit": credit}


def subscription_queue(consumer: str, options: ConsumerOptions) -> str:
    """Return the name of a subscription's queue (R70)."""
    name = options.get("subscription") or consumer
    if options.get("subscription") and options.get("client"):
        name = f"{options['client']}.{name}"
    return f"{options['address']}::{name}"


def attach_command(name: str, queue: str, session: str, options: ConsumerOptions) -> dict[str, Any]:
    """Return the command that attaches a consumer. The worker fills in omitted options."""
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
