"""`ringfaust send`: send messages, with bodies from arguments or standard input."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ringfaust.cli.operate import Target, approve, changed, connect_options, is_terminal, say
from ringfaust.cli.reach import lives, reached, started
from ringfaust.client import RingProducer, Unrouted
from ringfaust.client.outgoing import SendOptions
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.errors import RingfaustError

if TYPE_CHECKING:
    from ringfaust.cli.exchange import Sending


class BadBody(RingfaustError):
    """There is nothing to send, or an argument has the wrong form. Nothing was sent."""


def _options(how: Sending) -> SendOptions:
    """How to send each body.

    Raises:
        BadBody: a header is not of the form NAME=VALUE.
    """
    found: SendOptions = {"key": how.key, "headers": dict(map(_header, how.headers or ()))}
    if how.queue:
        found["queue"] = how.queue
    return found


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadBody(f"--header: {text!r}: write headers as NAME=VALUE, such as region=eu")
    return name, value


def run(target: Target, topic: str, bodies: Sequence[str], how: Sending) -> None:
    """Send messages to a topic, and say what was sent, and where.

    Raises:
        BadBody: there is nothing to send.
        NotConfirmed: nothing names the application, and the user did not confirm.
        Unrouted: no route reads the topic.
        BrokerUnreachable: no broker answers.
    """
    options = _options(how)
    if bodies and how.lines:
        raise BadBody("--lines: reads standard input, so give no BODY")
    approve(target, yes=how.yes)
    worker, queues = target.load()
    if target.place().folder is not None:
        _check_route(topic, queues)
    values = [os.fsencode(each) for each in bodies] or list(_from_stdin(lines=how.lines))
    if not any(values):
        raise BadBody("there is nothing to send: give a BODY, or write it to standard input")
    ids, is_read = asyncio.run(_send(worker, topic, values, options))
    what = ids[0] if len(ids) == 1 else f"{len(ids):,} messages, {ids[0]} to {ids[-1]}"
    changed(target, f"{what}: sent to {topic}")
    if not is_read:
        say("no worker lives: what was sent waits in the topic until one runs", to_errors=True)


def _check_route(topic: str, queues: QueuesConfig) -> None:
    """Check it against the file: it is known even if no worker runs."""
    routed = [each.topic for each in queues.routes]
    if topic not in routed:
        raise Unrouted(topic, "is read by no route of queues.yaml", routed)


def _from_stdin(*, lines: bool) -> Iterator[bytes]:
    if is_terminal():
        say("reading what to send; end it with Ctrl-D", to_errors=True)
    raw = sys.stdin.buffer.read()
    if not lines:
        yield raw
        return
    yield from filter(None, raw.splitlines())


async def _send(
    worker: WorkerConfig, topic: str, values: Sequence[bytes], options: SendOptions
) -> tuple[list[str], bool]:
    """Send, and return the ids, and whether a worker lives to read them."""
    worker = await reached(worker)
    ids: list[str] = []
    try:
        async with started(RingProducer(**connect_options(worker)), worker) as producer:
            for each in values:
                ids.append(await producer.send(topic, each, **options))
    except BaseException:  # Ctrl-C, too
        if ids:
            said = f"{len(ids):,} messages were sent before it ended, the last one is {ids[-1]}"
            say(said, to_errors=True)
        raise
    return ids, (await lives(worker)).lives
