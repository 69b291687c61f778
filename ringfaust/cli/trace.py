"""`ringfaust trace`: one message's life in sentences."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping

from ringfaust.cli.operate import Target, age_text, connect_options, print_json, time_text
from ringfaust.cli.parts import read_time
from ringfaust.client.trace import Event, Lifecycle, Trace, trace
from ringfaust.errors import RingfaustError

_HOUR_S = 3_600
_NOT_FOUND = 1


class BadTarget(RingfaustError):
    """The command names no message, or more than one. The text says how to name one."""


def run(target: Target, message: str, key: str, since: str, *, as_json: bool) -> int:
    """Print what happened to a message.

    Returns:
        0; 1 if no event names the message.

    Raises:
        BadTarget: not exactly one of `message` and `key` is given.
        BadTime: `since` is not a time.
    """
    if bool(message) == bool(key):
        raise BadTarget("name a message by its ID, by TOPIC/PARTITION/OFFSET, or by --key KEY")
    since_ms = read_time("--since", since) if since else int((time.time() - _HOUR_S) * 1000)
    worker, queues = target.load()
    topics = [route.topic for route in queues.routes]
    found = asyncio.run(
        trace(message, key=key, topics=topics, since_ms=since_ms, **connect_options(worker))
    )
    if as_json:
        print_json(found)
    elif found.lifecycles:
        for number, lifecycle in enumerate(found.lifecycles):
            if number:
                print()
            for line in describe(lifecycle):
                print(line)
    else:
        for line in _never_seen(message or f"with the key {key}", found):
            print(line)
    return 0 if found.lifecycles else _NOT_FOUND


# --- sentences ------------------------------------------------------------------------------------


def describe(lifecycle: Lifecycle) -> Iterator[str]:
    """The answer in one sentence, then each event with its time."""
    where = f" in queue {lifecycle.queue}" if lifecycle.queue else ""
    number = f" (number {lifecycle.sequence})" if lifecycle.sequence else ""
    yield f"Message {lifecycle.id}{where}{number}: {answer(lifecycle)}"
    for event in lifecycle.events:
        yield f"  {time_text(event['time_ms'])}  {_sentence(event)}"


def answer(lifecycle: Lifecycle) -> str:
    """Where the message is now, in one sentence."""
    last = lifecycle.events[-1]
    said = _ANSWERS.get(last["event"])
    return said(last) if said else _sentence(last)


def _sentence(event: Event) -> str:
    write = _SENTENCES.get(event["event"])
    return write(event) if write else f"{event['event']}."


def _evicted(event: Event) -> str:
    age = age_text(event["age_ms"])
    held = f"{event['ready']:,} of {event['ring_size']:,}"
    cause = event["cause"]
    made_room = f" to make room for {cause}" if cause else ""
    why = {
        "overflow": f"evicted{made_room}: the ring was full ({held})",
        "return_overflow": f"evicted when it came back: the ring was full ({held})",
        "scheduled_overflow": f"evicted when it was due: the ring was full ({held})",
        "limit": f"evicted{made_room}: the queue was at its limit",
        "shrink": f"evicted because the ring was made smaller ({event['ring_size']:,})",
        "purge": "evicted because an operator purged or deleted the queue",
    }[event["reason"]]
    delivered = (
        f"delivered {_times(event['handovers'])}" if event["handovers"] else "never delivered"
    )
    return f"{why}. It was {age} old, {delivered}."


def _dead(event: Event) -> str:
    if event["sequence"] == 0:
        return f"refused ({event['reason']}): {event['text']}. It is in the dead topic."
    text = f": {event['text']}" if event["text"] else ""
    why = {
        "undeliverable": f"given up after {event['attempt']} attempts",
        "rejected": f"rejected by {event['consumer']}{text}",
    }.get(event["reason"], f"{event['reason']}{text}")
    return f"{why}. It is in the dead topic."


def _expired(event: Event) -> str:
    held = f" while {event['consumer']} held it" if event["delivery"] else ""
    return f"expired{held}: its time to live ended at {time_text(event['expires_at_ms'])}."


def _returned(event: Event) -> str:
    until = f" until {time_text(event['due_ms'])}" if event.get("due_ms") else ""
    waits = f"and waits{until}" if until else "and is ready again"
    return f"came back from {event['consumer']} unsettled {waits}."


def _added(event: Event) -> str:
    return (
        f"entered the queue from {event['source']} with priority {event['priority']}, "
        f"{event['size_bytes']:,} bytes."
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


_Writer = Callable[[Event], str]
_SENTENCES: Mapping[str, _Writer] = {
    "added": _added,
    "scheduled": lambda e: (
        f"scheduled from {e['source']}: it is due at {time_text(e.get('due_ms', 0))}."
    ),
    "due": lambda e: "became due and is ready.",
    "dispatched": lambda e: (
        f"delivered to {e['consumer']} (delivery {e['delivery']}, attempt {e['attempt']})."
    ),
    "acked": lambda e: f"acked by {e['consumer']} (delivery {e['delivery']}).",
    "returned": _returned,
    "evicted": _evicted,
    "expired": _expired,
    "dead": _dead,
    "lost": lambda e: "lost in a crash of the worker: it was not persistent.",
    "removed": lambda e: "removed by an operator, or cancelled.",
    "moved_out": lambda e: f"moved to queue {e['to']} by an operator.",
    "pending": lambda e: f"waits for the decision about transaction {e['xid']}.",
    "unrouted": lambda e: "no queue of the address accepted it.",
    "refused": lambda e: f"refused ({e['reason']}): {e['text']}.",
}
_ANSWERS: Mapping[str, _Writer] = {
    "added": lambda e: "it is in the queue, ready to be delivered.",
    "due": lambda e: "it is in the queue, ready to be delivered.",
    "scheduled": lambda e: f"it is scheduled for {time_text(e.get('due_ms', 0))}.",
    "dispatched": lambda e: f"{e['consumer']} holds it and has not settled it yet.",
}
"""Where the last event leaves the message where it is; for others the sentence is the answer."""


def _never_seen(name: str, found: Trace) -> Iterator[str]:
    yield f"No event since {time_text(found.since_ms)} names message {name}."
    if found.hint:
        yield f"Its record: {found.hint}."
    yield "Likely reasons:"
    yield "  - it happened earlier: search further back with --since"
    yield "  - no worker has read it yet: `ringfaust queue ls` shows whether one answers"
    yield "  - its id is another: without the header ringfaust-id it is TOPIC/PARTITION/OFFSET"
    yield "  - its topic has no route in queues.yaml, or belongs to another application"
