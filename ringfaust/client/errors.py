"""What can go wrong between a client, the brokers and the worker."""

from __future__ import annotations

from ringfaust.errors import RingfaustError


class ClientError(RingfaustError):
    """Root of the client's own errors. Errors of the brokers are aiokafka's `KafkaError`s."""


class BadArgument(ClientError, ValueError):
    """What was given cannot be; nothing was written. The text names it and what would be right."""


class Closed(ClientError):
    """It was not started, or is closed. Use it in a `with` block, or `start` it."""


class NoAnswer(ClientError):
    """No worker has answered in time; whether it did what was asked is not known.

    What to do: see that a worker of this application runs, then ask again.
    """


class OutcomeUnknown(ClientError):
    """A Kafka transaction was being committed when the brokers failed: all took effect or none.

    What to do: `rollback` a session, which returns what was not settled; send again what may be
    there twice.
    """


class Refused(ClientError):
    """A worker refused a command; nothing was changed (R103).

    Attributes:
        reason: one of those in docs/protocol.md, `unknown_queue` say.
        about: the name or message id that it is about.
        text: what was wrong, and what would be right.
    """

    def __init__(self, reason: str, about: str, text: str) -> None:
        super().__init__(f"{reason} {about!r}: {text}")
        self.reason = reason
        self.about = about
        self.text = text


class SettleRefused(Refused):
    """A settle came too late or twice: the delivery has ended.

    With the reason `stale_delivery` or `evicted` the message was given back meanwhile, by a
    timeout say: it comes again, to this consumer or to another, or has left by the ring.
    """
