"""Send the messages of a redrive again, in transactions of bounded size (R43).

Each transaction contains some messages and the fact that they were sent. So a redrive that is
killed continues where it stopped when it is run again, and nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aiokafka.errors import ProducerFenced

from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import redrive_transactional_id
from ringfaust.kafka.record_sender import (
    SENDING_ERRORS,
    TRANSACTION_BYTES,
    TRANSACTION_RECORDS,
    OutgoingRecord,
    RecordSender,
)
from ringfaust.kafka.redrive import RedriveContext, RedriveMessage, read_pages


class RedriveStopped(RingfaustError):
    """The brokers failed. Some of the messages were sent, each once; the text says what to do."""

    def __init__(self, sent: int, error: BaseException) -> None:
        reason = f"the brokers failed ({error!r})"
        if isinstance(error, ProducerFenced):
            reason = "another redrive of this application has taken over"
        super().__init__(
            f"{reason} after {sent:,} messages were sent. Run the same command again, without "
            "--again: it sends only the rest"
        )


async def send(
    context: RedriveContext, messages: Sequence[RedriveMessage], *, again: bool = False
) -> int:
    """Send each message once, except those that a redrive has sent before.

    Messages from one partition keep their order.

    Args:
        context: the application.
        messages: what to send.
        again: first forget that these messages were sent before.

    Returns:
        The number of messages sent.

    Raises:
        RedriveStopped: the brokers failed.
        UnknownRedriven: it is not known which messages were sent before.
    """
    transactional_id = redrive_transactional_id(context.brokers.application)
    sender = RecordSender(
        context.brokers.client_options, transactional_id, context.max_record_bytes
    )
    sent = 0
    try:
        await sender.start()
        # Only now is the outcome of an earlier redrive settled.
        pages = await read_pages(context, messages)
        if again:
            for page, within in pages:
                for each in within:
                    page.remove(*each.position)
                await sender.commit([], page.offsets, page.group)
        for page, within in pages:
            left = [each for each in within if not page.has(*each.position)]
            for part in _parts(left):
                for each in part:
                    page.add(*each.position)
                await sender.commit(map(_record, part), page.offsets, page.group)
                sent += len(part)
    except SENDING_ERRORS as error:
        cause = sender.cause(error)
        if cause is None:
            raise
        raise RedriveStopped(sent, cause) from error
    finally:
        await sender.stop()
    return sent


def _parts(messages: Sequence[RedriveMessage]) -> Iterator[list[RedriveMessage]]:
    """Divide the messages into transactions."""
    part: list[RedriveMessage] = []
    size = 0
    for each in messages:
        if part and (
            len(part) >= TRANSACTION_RECORDS or size + each.size_bytes > TRANSACTION_BYTES
        ):
            yield part
            part, size = [], 0
        part.append(each)
        size += each.size_bytes
    if part:
        yield part


def _record(message: RedriveMessage) -> OutgoingRecord:
    dead = message.dead.record
    return OutgoingRecord(message.topic, message.partition, dead.key, dead.value, message.headers)
