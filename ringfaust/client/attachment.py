"""A consumer's attachment to its queue: attach, heartbeat, re-attach, and read its deliveries."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError

from ringfaust.client.brokers import CLOSE_TIMEOUT_S, stop
from ringfaust.client.connection import Connection, encode
from ringfaust.client.errors import ClientError, Closed, NoAnswer, Refused
from ringfaust.client.locate import QueueLocation, locate_by_counts
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import InRecord, Role

log = logging.getLogger(__name__)

Dispatched = tuple[InRecord, Mapping[str, bytes]]
"""A dispatched record, and its headers by name."""

_RECORDS_AT_ONCE = 500
"""How many records are taken from the reader at once, between two turns of the event loop."""
HEARTBEATS_PER_TIMEOUT = 3
"""How many heartbeats are sent at least while a silent consumer would time out."""
REMEMBERED = 10_000
"""Numbers of deliveries remembered exactly. That is about one megabyte."""
SHORTEST_INTERVAL_S = 0.1
"""Heartbeats are never sent more often: a timeout of a few ms would flood the control topic."""
_FOLLOW_S = 1.0
"""How long to look for the partition of a queue at least, between two heartbeats."""


class DispatchSnapshot(NamedTuple):
    """What was dispatched to a consumer up to some moment, to be forgotten later."""

    held: list[int]
    """Numbers of the deliveries that it held."""
    end: int
    """The end offset of the dispatched topic."""


class SeenDeliveries:
    """The deliveries of one partition that a consumer has handed out, so that none is twice (R118).

    A worker writes each delivery once. A Spark job may write records again: an interrupted
    micro-batch leaves a part of its records in the topic, and its repetition writes them all.
    """

    def __init__(self) -> None:
        # To find the first key of a plain dict, Python passes over all that were removed before it.
        self._numbers: OrderedDict[int, None] = OrderedDict()
        """In the order in which they were seen."""
        self._forgotten = 0
        """Numbers up to this one count as seen. The deliveries of a partition count up."""

    def is_new(self, number: int) -> bool:
        """Whether this is the first record of a delivery. It counts as seen from now on."""
        if number <= self._forgotten or number in self._numbers:
            return False
        self._numbers[number] = None
        if len(self._numbers) > REMEMBERED:
            oldest, _ = self._numbers.popitem(last=False)
            self._forgotten = max(self._forgotten, oldest)
        return True


def heartbeat_interval_s(timeout_ms: int, longest_s: float) -> float:
    """The time between two heartbeats (R13).

    Args:
        timeout_ms: after which silence the queue detaches a consumer; 0: never.
        longest_s: what the application has chosen.
    """
    if not timeout_ms:
        return longest_s
    return min(longest_s, max(timeout_ms / 1000 / HEARTBEATS_PER_TIMEOUT, SHORTEST_INTERVAL_S))


class Attachment:
    """Keeps one consumer attached and reads what is dispatched to it.

    Heartbeats run in the background. If they fail for good, `next` and `check` raise the error.
    """

    def __init__(
        self,
        connection: Connection,
        command: Mapping[str, Any],
        queue: str,
        heartbeat_interval_s: float,
        *,
        on_heartbeat: Callable[[], Awaitable[None]],
        on_lost: Callable[[], None],
    ) -> None:
        """Prepare an attachment; `start` attaches.

        Args:
            connection: must be open before `start`.
            command: the command that attaches or subscribes the consumer.
            queue: the queue it attaches to.
            heartbeat_interval_s: longest time between two heartbeats. The queue's timeout may
                demand a shorter one (R13).
            on_heartbeat: called before each heartbeat.
            on_lost: called when the consumer was found detached and its deliveries returned.
        """
        self.partition = -1
        """The partition of the queue; -1 before `start`."""
        self._connection = connection
        self._command = command
        self._who = {"queue": queue, "consumer": command["consumer"]}
        self._queue, self._name = queue.encode(), str(command["consumer"]).encode()
        self._longest_interval_s = self._heartbeat_interval_s = heartbeat_interval_s
        self._on_heartbeat, self._on_lost = on_heartbeat, on_lost
        self._reader: AIOKafkaConsumer | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._first_valid_offset = 0
        """Records of the dispatched topic before this offset belong to ended deliveries."""
        self._fetched: deque[InRecord] = deque()
        """Records of the dispatched topic that were read and not looked at yet."""
        self._seen = SeenDeliveries()
        """Of this partition."""
        self._is_location_certain = True
        """False while the queue has no message yet and so may turn up in another partition."""

    async def start(self, place: QueueLocation) -> None:
        """Attach in the given partition, and start the heartbeats.

        Raises:
            Refused: the worker refused it, for example with `consumer_limit`.
            NoAnswer: no worker answered in time.
            KafkaError: the brokers cannot be reached or refuse the client.
        """
        self._is_location_certain = place.is_certain
        try:
            await self._attach_at(place.partition)
        except BaseException as error:
            if self._reader is not None and not isinstance(error, Refused):
                await self._detach()  # the worker may still process the attach command
            await self._stop_reading()
            raise
        self._heartbeats = asyncio.create_task(self._run_heartbeats())

    async def close(self) -> None:
        """Stop the heartbeats and detach. A call that waits in `next` raises `Closed`."""
        heartbeats, self._heartbeats = self._heartbeats, None
        try:
            if heartbeats is not None:
                heartbeats.cancel()
                await asyncio.wait([heartbeats])
                if self.is_whole:
                    await self._detach()
        finally:
            await self._stop_reading()

    @property
    def is_whole(self) -> bool:
        """Whether nothing has ended the heartbeats."""
        return self._failure is None

    def take(self) -> Dispatched | None:
        """Return what `next` returns if it is here already; None: it is not."""
        self._reading()
        while self._fetched:
            record = self._fetched.popleft()
            headers = dict(record.headers)
            if (
                headers.get(h.CONSUMER) == self._name
                and headers.get(h.QUEUE) == self._queue
                and record.offset >= self._first_valid_offset
                and self._seen.is_new(int(headers[h.DELIVERY]))
            ):
                self._is_location_certain = True
                return record, headers
        return None

    async def next(self) -> Dispatched:
        """Return the next record dispatched to this consumer, and its headers by name.

        A record that repeats a delivery is dropped (R118).

        Raises:
            Closed: it is not started or already closed.
            Exception: the error that ended the heartbeats.
        """
        while (found := self.take()) is None:  # another task may take what was fetched
            with suppress(ConsumerStoppedError):  # closed, failed or moved to another partition
                await self._fetch(self._reading())
        return found

    async def _fetch(self, reader: AIOKafkaConsumer) -> None:
        """Wait for a record, and take all that have arrived with it: that costs little more."""
        self._fetched.append(await reader.getone())
        more = await reader.getmany(max_records=_RECORDS_AT_ONCE)
        for records in more.values():
            self._fetched.extend(records)
        await asyncio.sleep(0)  # let acks and heartbeats through, however much there is to read

    def check(self) -> None:
        """Raise the error that ended the heartbeats, if any."""
        if self._failure is not None:
            raise self._failure

    def _reading(self) -> AIOKafkaConsumer:
        self.check()
        if self._reader is None:
            raise Closed("the consumer is not started or already closed")
        return self._reader

    async def request(self, kind: str, **fields: object) -> None:
        """Send a command about this consumer and wait until the worker has executed it.

        Args:
            kind: the command's type.
            fields: its further fields.

        Raises:
            Refused: the worker refused it.
            NoAnswer: no worker answered in time.
            Exception: the error that ended the heartbeats.
        """
        self.check()
        await self._connection.request(self.partition, {"type": kind, **self._who, **fields})

    async def end(self) -> int:
        """Return the end offset of the dispatched topic in this partition, for `forget`."""
        place = TopicPartition(self._connection.topic(Role.DISPATCHED), self.partition)
        return int((await self._reading().end_offsets([place]))[place])

    def forget(self, end: int) -> None:
        """Skip unread records before the offset `end`: their deliveries have been returned."""
        self._first_valid_offset = max(self._first_valid_offset, end)

    # --- attach and detach -----------------------------------------------------------------------

    async def _attach_at(self, partition: int) -> None:
        """Read a partition, then attach there: in this order no delivery is missed."""
        reader = await self._connection.reader(Role.DISPATCHED, partition)
        before, self._reader = self._reader, reader
        if partition != self.partition:
            self._seen = SeenDeliveries()
        self.partition, self._first_valid_offset = partition, 0
        self._fetched.clear()
        if before is not None:
            await stop(before)
        self._follow_timeout(await self._connection.request(partition, self._command))

    async def _attach_again(self) -> None:
        """Attach again after a timeout; the worker has returned all deliveries."""
        log.warning("%(consumer)s was detached from %(queue)s and attaches again", self._who)
        self._on_lost()
        self.forget(await self.end())
        self._follow_timeout(await self._connection.request(self.partition, self._command))

    async def _follow_queue(self) -> None:
        """Move to the partition where the queue's first message has arrived, if it is another."""
        try:
            async with asyncio.timeout(max(self._heartbeat_interval_s, _FOLLOW_S)):
                place = await locate_by_counts(self._connection, self._who["queue"])
        except TimeoutError:  # a partition does not answer: it may have stopped (R123)
            return
        if place is None or not place.is_certain:
            return
        if place.partition != self.partition:
            await self._detach()
            await self._attach_at(place.partition)
        self._is_location_certain = True

    async def _detach(self) -> None:
        """Write the detach command. If the brokers are gone, the consumer times out instead."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                raw = encode({"type": "detach", **self._who})
                await self._connection.write_command(self.partition, raw)
        except (TimeoutError, KafkaError, ClientError) as error:
            log.warning("%s is not detached: %r", self._who["consumer"], error)

    async def _stop_reading(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await stop(reader)

    # --- heartbeats ------------------------------------------------------------------------------

    async def _run_heartbeats(self) -> None:
        try:
            await self._send_heartbeats()
        except Exception as error:
            log.debug("%s has failed", self._who["consumer"], exc_info=True)
            self._failure = error
            await self._stop_reading()  # wakes a call that waits in `next`

    def _follow_timeout(self, reply: Mapping[str, Any]) -> None:
        """Derive the interval of the heartbeats from the timeout that a reply states (R13)."""
        timeout_ms = reply.get("answer", {}).get("consumer_timeout_ms", 0)
        self._heartbeat_interval_s = heartbeat_interval_s(timeout_ms, self._longest_interval_s)

    async def _send_heartbeats(self) -> None:
        """Send heartbeats at a steady pace, whether or not they are answered.

        While brokers or workers are away there is nothing else to do than to go on.
        """
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self._heartbeat_interval_s, loop.time())
            await asyncio.sleep(due - loop.time())
            try:
                await self._send_heartbeat()
            except NoAnswer:
                continue
            except KafkaError as error:
                if not error.retriable:
                    raise

    async def _send_heartbeat(self) -> None:
        await self._on_heartbeat()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_interval_s):
                    heartbeat = {"type": "heartbeat", **self._who}
                    reply = await self._connection.request(self.partition, heartbeat)
                    self._follow_timeout(reply)
        except Refused:  # not attached any more, or its subscription has ended
            await self._attach_again()
        if not self._is_location_certain:
            await self._follow_queue()
