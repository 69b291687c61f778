"""Send the messages of a redrive again, in transactions of bounded size (R43).

Each transaction contains some messages and the fact that they were sent. So a redrive that is
killed continues where it stopped when it is run again, and nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import redrive_transactional_id
from ringfaust.kafka.redrive import RedriveContext, RedriveMessage, read_pages
from ringfaust.kafka.redriven import RedrivenPage
from ringfaust.kafka.vendor import FAILED_BETWEEN_CALLS, failure_between_calls, send_once

TRANSACTION_RECORDS = 1_000
"""The most messages of one transaction."""
TRANSACTION_BYTES = 4_000_000
"""The most bytes of one transaction, unless a single message is larger."""


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
    sender = _Sender(context)
    try:
        await sender.start()
        # Only now is the outcome of an earlier redrive settled.
        pages = await read_pages(context, messages)
        if again:
            for page, within in pages:
                await sender.forget(page, within)
        for page, within in pages:
            left = [each for each in within if not page.has(*each.position)]
            for part in _parts(left):
                await sender.send(page, part)
    except (KafkaError, *FAILED_BETWEEN_CALLS) as error:
        failed = sender.failure()
        if failed is None and not isinstance(error, KafkaError):
            raise
        raise RedriveStopped(sender.sent, failed or error) from error
    finally:
        await sender.stop()
    return sender.sent


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


class _Sender:
    """The producer of one redrive. Starting it stops a redrive that is still running."""

    def __init__(self, context: RedriveContext) -> None:
        self._producer = AIOKafkaProducer(
            **context.brokers.client_options,
            transactional_id=redrive_transactional_id(context.brokers.application),
            acks="all",
            max_request_size=2 * context.max_record_bytes,
        )
        send_once(self._producer)
        self.sent = 0
        """Number of messages in committed transactions."""

    async def start(self) -> None:
        await self._producer.start()

    async def stop(self) -> None:
        await self._producer.stop()

    def failure(self) -> BaseException | None:
        """The error that ended the transaction, if one did."""
        return failure_between_calls(self._producer)

    async def forget(self, page: RedrivenPage, messages: Sequence[RedriveMessage]) -> None:
        """Commit that the messages were not sent."""
        for each in messages:
            page.remove(*each.position)
        await self._producer.begin_transaction()
        await self._producer.send_offsets_to_transaction(page.offsets(), page.group)
        await self._producer.commit_transaction()

    async def send(self, page: RedrivenPage, messages: Sequence[RedriveMessage]) -> None:
        """Send the messages of one transaction, and commit that they were sent."""
        await self._producer.begin_transaction()
        stored = []
        for each in messages:
            record = each.dead.record
            stored.append(
                await self._producer.send(
                    each.topic,
                    record.value,
                    key=record.key,
                    partition=each.partition,
                    headers=list(each.headers),
                )
            )
            page.add(*each.position)
        results = await asyncio.gather(*stored, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        await self._producer.send_offsets_to_transaction(page.offsets(), page.group)
        await self._producer.commit_transaction()
        self.sent += len(messages)
