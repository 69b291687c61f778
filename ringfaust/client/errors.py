"""Errors of the client. Errors of the brokers are raised as they are: aiokafka's `KafkaError`s."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ringfaust.errors import RingfaustError

_SHOWN_TOPICS = 20


class ClientError(RingfaustError):
    """Base class of the client's own errors."""


class BadArgument(ClientError, ValueError):
    """An argument is not valid, and nothing was written. The text names it and says what is."""


def whole(name: str, given: object, least: int | None = 1, most: int | None = None) -> int:
    """Return a number that was given as an argument.

    Args:
        name: of the argument, for the error.
        given: what was given.
        least: the lowest valid number; None: any.
        most: the highest; None: any.

    Raises:
        BadArgument: it is no whole number, or not a valid one.
    """
    if (
        isinstance(given, int) and not isinstance(given, bool)
        and (least is None or given >= least) and (most is None or given <= most)
    ):  # fmt: skip
        return given
    valid = "" if least is None else f" of {least} or more"
    valid = valid if most is None else f" from {least} to {most}"
    raise BadArgument(f"{name} must be a whole number{valid}, not {given!r}")


class Closed(ClientError):
    """The object is not started or already closed. Use it in a `with` block or call `start`."""


class StartedAlready(ClientError):
    """The object is started. Close it first, or create another one."""

    def __init__(self) -> None:
        super().__init__("it is started already; close it first, or create another one")


class OtherProcess(ClientError):
    """The object belongs to the process from which this one was forked.

    Attributes:
        pid: of that process.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(
            f"it belongs to process {pid}, from which this one was forked; create one of its own "
            "in each process"
        )
        self.pid = pid


class NoTopic(ClientError):
    """The topic to send to does not exist, or this client may not see it. Nothing was written.

    A record whose topic was deleted before it was stored is written nevertheless if the topic is
    created again while the client is open.

    Attributes:
        topic: its name.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"there is no topic {topic}, or this client may not see it. Check the name; "
            "`ringfaust topics create` creates the topics that queues.yaml reads"
        )
        self.topic = topic


class Unrouted(ClientError):
    """No worker reads the topic to send to as a producer's. Nothing was written.

    It is one of ringfaust's own topics, or the workers of the application that run now have no
    route for it in queues.yaml.

    Attributes:
        topic: its name.
        routed: the topics of their routes, in order; empty if no worker runs.
    """

    def __init__(self, topic: str, why: str, routed: Iterable[str]) -> None:
        self.topic = topic
        self.routed = tuple(sorted(routed))
        shown = ", ".join(self.routed[:_SHOWN_TOPICS])
        more = len(self.routed) - _SHOWN_TOPICS
        shown += f" and {more} more" if more > 0 else ""
        close = get_close_matches(topic, self.routed, n=1)
        guess = f"; did you mean {close[0]}?" if close else ""
        known = f"Routed topics: {shown}{guess}" if shown else "No worker runs that has routes"
        super().__init__(f"topic {topic} {why}. {known}")


class NoAnswer(ClientError):
    """No worker answered in time. It is unknown whether the command took effect.

    What to do: check that a worker of this application runs, then repeat the command.
    """


class OutcomeUnknown(ClientError):
    """The brokers failed while a Kafka transaction was committed: all of it took effect or nothing.

    What to do: `rollback` a session, which returns whatever is still unsettled; send messages again
    if duplicates are acceptable.
    """


class Refused(ClientError):
    """A worker refused a command and changed nothing (R103).

    Attributes:
        reason: one of the reasons in docs/protocol.md, such as `unknown_queue`.
        about: the name or message id that the refusal is about.
        text: what is wrong, and what would be valid.
    """

    def __init__(self, reason: str, about: str, text: str) -> None:
        super().__init__(f"{reason} {about!r}: {text}")
        self.reason = reason
        self.about = about
        self.text = text


class SettleRefused(Refused):
    """A settle came after its delivery had ended.

    With the reason `stale_delivery` or `evicted`, the delivery was returned in the meantime, for
    example by a timeout. The message is delivered again, to this consumer or another, or was
    evicted by the ring.
    """
