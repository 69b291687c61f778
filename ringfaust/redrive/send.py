"""Send dead and evicted records again, in transactions of bounded size (R43).

Each transaction contains some records and the fact that they were sent. So a redrive that is killed
continues where it stopped when it is run again, by whichever tool, and nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import groupby
from typing import NamedTuple

from aiokafka.errors import KafkaError, ProducerFenced

from ringfaust.errors import RingfaustError
from ringfaust.kafka.names import redrive_transactional_id
from ringfaust.protocol.records import OutgoingRecord
from ringfaust.redrive.lake_jobs import EarlierLakeJob
from ringfaust.redrive.memory import Origin, RedrivenPage
from ringfaust.redrive.plan import RedriveContext, RedriveMessage, read_page
from ringfaust.transactional.writer import (
    TOO_LARGE,
    TRANSACTION_BYTES,
    TRANSACTION_RECORDS,
    TransactionalWriter,
    opened,
    size_bytes,
)


class RedriveStopped(RingfaustError):
    """The brokers failed, or refuse a message. Those sent before it were sent once each.

    What to do: what the text says.
    """

    def __init__(self, sent: int, error: BaseException) -> None:
        reason = f"the brokers failed ({error!r})"
        if isinstance(error, ProducerFenced):
            reason = "another redrive of this application has taken over"
        elif isinstance(error, TOO_LARGE):
            reason = (
                "a message is larger than its topic allows: raise its max.message.bytes. It stopped"
            )
        super().__init__(
            f"{reason} after {sent:,} messages were sent. Run the same command again, without "
            "--again: it sends only the rest"
        )


class Redriven(NamedTuple):
    """A record to send, and the dead or evicted record that it was."""

    origin: Origin
    record: OutgoingRecord


async def send_messages(
    context: RedriveContext, messages: Iterable[RedriveMessage], *, again: bool = False
) -> int:
    """Send the messages of a plan; as `send`. Messages from one partition keep their order."""
    redriven = [Redriven(each.origin, each.record) for each in messages]
    return await send(context, sorted(redriven, key=_page), again=again)


async def send(
    context: RedriveContext,
    redriven: Iterable[Redriven],
    *,
    again: bool = False,
    rate: float | None = None,
    said: Callable[[int], None] = lambda _: None,
) -> int:
    """Send each record once, except those that a redrive has sent before.

    Args:
        context: the application.
        redriven: what to send, of one topic, by page. With `again` they are iterated twice.
        again: first forget that these records were sent before.
        rate: the most records per second; None: unlimited.
        said: called after each transaction with the number of records sent so far.

    Returns:
        The number of records sent.

    Raises:
        RedriveStopped: the brokers failed.
        UnknownRedriven: a later version has written which records were sent before.
    """
    most = TRANSACTION_RECORDS if rate is None else max(1, min(TRANSACTION_RECORDS, int(rate / 2)))
    started = time.monotonic()
    sent = 0
    try:
        async with _writer(context) as writer:
            page: RedrivenPage | None = None
            if again:
                origins = (each.origin for each in redriven)
                page = await _note(context, writer, origins, RedrivenPage.remove)
            parts = _parts(redriven, most)
            # Who provides the records may have to wait for them.
            while part := await asyncio.to_thread(next, parts, None):
                if page is None or page.number != part[0].origin.page:
                    page = await read_page(context, part[0].origin.topic, part[0].origin.page)
                left = [each for each in part if not page.has(each.origin)]
                if not left:
                    continue
                if rate is not None:
                    await asyncio.sleep(started + sent / rate - time.monotonic())
                for each in left:
                    page.add(each.origin)
                produce = partial(writer.send, [each.record for each in left])
                await writer.commit(produce, page.offsets(), page.group)
                sent += len(left)
                said(sent)
    except KafkaError as error:
        raise RedriveStopped(sent, error) from error
    return sent


async def share(context: RedriveContext, job: EarlierLakeJob, origins: Iterable[Origin]) -> None:
    """Add to the memory what a job of an earlier version sent, and mark the job.

    Args:
        context: the application.
        job: the job.
        origins: of the records that it sent, by page.

    Raises:
        RedriveStopped: the brokers failed.
        UnknownRedriven: a later version has written which records were sent before.
    """
    try:
        async with _writer(context) as writer:
            await _note(context, writer, origins, RedrivenPage.add)
            await writer.commit(partial(writer.send, []), job.shared(), job.group)
    except KafkaError as error:
        raise RedriveStopped(0, error) from error


def _writer(context: RedriveContext) -> AbstractAsyncContextManager[TransactionalWriter]:
    """The writer of all redrives of an application: one stops the one before.

    Once it has started, the outcome of an earlier redrive is settled.
    """
    brokers = context.brokers
    return opened(
        TransactionalWriter(
            brokers.client_options,
            redrive_transactional_id(brokers.application),
            max_request_size=2 * context.max_record_bytes,
        )
    )


async def _note(
    context: RedriveContext,
    writer: TransactionalWriter,
    origins: Iterable[Origin],
    change: Callable[[RedrivenPage, Origin], None],
) -> RedrivenPage | None:
    """Change the memory of these records, a page in a transaction.

    Returns:
        The last page. Readers see what it was before, until the brokers have ended its transaction.
    """
    page = None
    for (topic, number), within in groupby(origins, key=lambda origin: (origin.topic, origin.page)):
        page = await read_page(context, topic, number)
        for origin in within:
            change(page, origin)
        await writer.commit(partial(writer.send, []), page.offsets(), page.group)
    return page


def _page(redriven: Redriven) -> int:
    return redriven.origin.page


def _parts(redriven: Iterable[Redriven], most: int) -> Iterator[Sequence[Redriven]]:
    """Divide the records into transactions, each of one page."""
    for _, within in groupby(redriven, key=_page):
        part: list[Redriven] = []
        size = 0
        for each in within:
            more = size_bytes(each.record)
            if part and (len(part) >= most or size + more > TRANSACTION_BYTES):
                yield part
                part, size = [], 0
            part.append(each)
            size += more
        yield part
