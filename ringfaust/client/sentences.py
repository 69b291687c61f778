"""A message's life in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ringfaust.client.lifecycles import Event, Lifecycle, Trace
from ringfaust.times import age_text, time_text


def story(lifecycles: Sequence[Lifecycle]) -> Iterator[str]:
    """For each lifecycle the answer in one sentence, then each event with its time."""
    for number, lifecycle in enumerate(lifecycles):
        if number:
            yield ""
        where = f" in queue {lifecycle.queue}" if lifecycle.queue else ""
        count = f" (number {lifecycle.sequence})" if lifecycle.sequence else ""
        redriven = f", redriven {_times(lifecycle.redrives)}" if lifecycle.redrives else ""
        then = _redriven_to(lifecycle, lifecycles[number + 1 :])
        yield f"Message {lifecycle.id}{where}{count}{redriven}: {answer(lifecycle)}{then}"
        for event in lifecycle.events:
            yield f"  {time_text(event['time_ms'])}  {sentence(event)}"


def _redriven_to(lifecycle: Lifecycle, later: Sequence[Lifecycle]) -> str:
    """Where the message came back to after it was dead or evicted."""
    if lifecycle.events[-1]["event"] in ("evicted", "dead", "expired"):
        for each in later:
            if each.id == lifecycle.id and each.redrives > lifecycle.redrives:
                return f" Then it was redriven to queue {each.queue} (number {each.sequence})."
    return ""


def answer(lifecycle: Lifecycle) -> str:
    """Where the message is now, in one sentence."""
    last = lifecycle.events[-1]
    said = _ANSWERS.get(last["event"])
    return said(last) if said else sentence(last)


def sentence(event: Event) -> str:
    """What an event says about its message."""
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
    }.get(event["reason"], f"evicted ({event['reason']})")
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
    "decided": lambda e: (
        f"transaction {e['xid']} was rolled back: what was sent in it never entered a queue."
    ),
    "unreadable": lambda e: (
        f"could not be read ({e['reason']}): {e['text']}. It is in the dead topic."
    ),
    "gap": lambda e: f"no worker has read it. {e['text']}.",
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


def never_seen(name: str, found: Trace) -> Iterator[str]:
    """What is known about a message that no event names, and what to check."""
    yield f"No event since {time_text(found.since_ms)} names message {name}."
    if found.hint:
        yield f"Its record: {found.hint}."
    yield "Likely reasons:"
    yield "  - it happened earlier: search further back with --since"
    yield "  - no worker has read it yet: `ringfaust queue ls` shows whether one answers"
    yield "  - its id is another: without the header ringfaust-id it is TOPIC/PARTITION/OFFSET"
    yield "  - its topic has no route in queues.yaml, or belongs to another application"
