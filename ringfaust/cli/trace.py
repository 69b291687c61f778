"""`ringfaust trace`: what happened to one message, in sentences."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ringfaust.cli.operate import Target, connect_options, print_json, say
from ringfaust.cli.parts import read_time
from ringfaust.cli.reach import reached
from ringfaust.client.lifecycles import Trace, place_of
from ringfaust.client.sentences import left_out, never_seen, story
from ringfaust.client.trace import trace
from ringfaust.errors import RingfaustError

_NOT_FOUND = 1


class BadTarget(RingfaustError):
    """The command names no message, or more than one. The text says how to name one."""


def run(
    target: Target, message: str, key: str, since: str, lake: str | None, *, as_json: bool
) -> int:
    """Print what happened to a message.

    Returns:
        0; 1 if no event names the message.

    Raises:
        BadTarget: not exactly one of `message` and `key` is given.
        BadTime: `since` is not a time.
        MissingExtra: `lake` is given, but its packages are not installed.
        NoLake: there is no lake.
    """
    if bool(message) == bool(key):
        raise BadTarget("name a message by its ID, by TOPIC/PARTITION/OFFSET, or by --key KEY")
    if lake is None:
        found = _from_topics(target, message, key, read_time("--since", since or "1h"))
    else:
        from ringfaust.cli.trace_lake import trace_lake  # noqa: PLC0415 - needs an extra

        since_ms = read_time("--since", since) if since else 0
        found = trace_lake(lake, message, key=key, since_ms=since_ms)
    if as_json:
        print_json(found)
    elif found.lifecycles:
        say(*story(found.lifecycles), *left_out(found))
    else:
        say(*never_seen(message or f"with the key {key}", found), *left_out(found))
    return 0 if found.lifecycles else _NOT_FOUND


def _from_topics(target: Target, message: str, key: str, since_ms: int) -> Trace:
    worker, queues = target.load()
    topics = [route.topic for route in queues.routes]

    async def search() -> Trace:
        where = connect_options(await reached(worker))
        return await trace(message, key=key, topics=topics, since_ms=since_ms, **where)

    found = asyncio.run(search())
    place, file = place_of(message), target.place().folder
    if found.lifecycles or place is None or place[0] in topics or file is None:
        return found
    no_route = f"no route of queues.yaml reads topic {place[0]}"
    return replace(found, hint=f"{found.hint}; {no_route}")
