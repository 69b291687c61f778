"""`ringfaust send` and `ringfaust receive`: their options."""

# ruff: noqa: PLC0415 - what is imported inside functions is slow to import

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import typer

from ringfaust.cli.operate import QueueName, Target, Yes


class Sending(NamedTuple):
    """What to send with each body; see `with_options`."""

    key: Annotated[str | None, typer.Option(help="Key of the records.")] = None
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header. Repeatable."),
    ] = None
    queue: Annotated[
        str, typer.Option(help="Name of the queue, for routes with {header:ringfaust-queue}.")
    ] = ""
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of standard input is a message.")
    ] = False
    yes: Yes = False


class Receiving(NamedTuple):
    """How to receive; see `with_options`."""

    settle: Annotated[
        Literal["browse", "ack", "release"],
        typer.Option(
            help="browse: only look. ack: take them. release: take them and give them back, which "
            "counts as an attempt."
        ),
    ] = "browse"
    most: Annotated[
        int, typer.Option("--max", min=1, max=10_000, help="Most messages to receive.")
    ] = 1
    wait: Annotated[
        str, typer.Option(metavar="LENGTH", help="How long to wait for each: 500ms, 5s, 1min.")
    ] = "5s"
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each message as an object on a line.")
    ] = False
    yes: Yes = False


def send(
    *,
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic that a route reads.")],
    bodies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BODY…]", help="A message each. Default: standard input."),
    ] = None,
    how: Sending,
) -> None:
    """Send messages: each BODY, or what standard input has.

    Example: ringfaust send orders 'a dozen eggs' --key kitchen --header region=eu
    """
    from ringfaust.cli.send import run

    run(target, topic, bodies or (), how)


def receive(*, target: Target, queue: QueueName, how: Receiving) -> None:
    """Print the bodies of a queue's messages, one a line: look at them, or take them.

    Exit status 1 if there was no message.

    Example: ringfaust receive orders --settle ack --max 10 --wait 2s
    """
    from ringfaust.cli.receive import run

    raise typer.Exit(run(target, queue, how))
