"""What happened to a message, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ringfaust.client.lifecycles import Event, Lifecycle, Trace
from ringfaust.protocol.lifecycle import EVENTS, times
from ringfaust.times import time_text


def story(lifecycles: Sequence[Lifecycle]) -> Iterator[str]:
    """For each lifecycle the answer in one sentence, then each event with its time."""
    for number, lifecycle in enumerate(lifecycles):
        if number:
            yield ""
        where = f" in queue {lifecycle.queue}" if lifecycle.queue else ""
        count = f" (number {lifecycle.sequence})" if lifecycle.sequence else ""
        redriven = f", redriven {times(lifecycle.redrives)}" if lifecycle.redrives else ""
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
    declared = EVENTS.get(last["event"])
    return declared.answer(last) if declared and declared.answer else sentence(last)


def sentence(event: Event) -> str:
    """What an event says about its message."""
    declared = EVENTS.get(event["event"])
    return declared.says(event) if declared and declared.says else f"{event['event']}."


def left_out(found: Trace) -> Iterator[str]:
    """What a trace has not looked at."""
    if found.left_out:
        yield "Left out:"
        yield from (f"  - {each}" for each in found.left_out)


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
