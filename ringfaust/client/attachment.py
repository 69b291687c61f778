"""A consumer's place at its queue: attached, alive, attached again; and what comes to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError

from ringfaust.client.connection import CLOSE_TIMEOUT_S, Connection, encode, stop
from ringfaust.client.errors import ClientError, Closed, NoAnswer, Refused
from ringfaust.client.locate import QueueLocation, locate_by_counts
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import InRecord, Role

log = logging.getLogger(__name__)


class Attachment:
    """See the head of this file. What may fail in the background is raised by `next`."""

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
        """Of a consumer.

        Args:
            connection: must be started, and listen.
            command: attaches it.
            queue: that it attaches to.
            heartbeat_interval_s: between two heartbeats.
            on_heartbeat: called before each.
            on_lost: called when it was found detached: all it held has been given back.
        """
        self.partition = -1
        """Where the queue lives; known when it is started."""
        self._connection = connection
        self._command = command
        self._who = {"queue": queue, "consumer": command["consumer"]}
        self._queue, self._name = queue.encode(), str(command["consumer"]).encode()
        self._heartbeat_interval_s = heartbeat_interval_s
        self._on_heartbeat, self._on_lost = on_heartbeat, on_lost
        self._reader: AIOKafkaConsumer | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._first_valid_offset = 0
        """Records before this offset are of deliveries that have ended."""
        self._is_location_certain = True
        """False: the queue may live elsewhere, for no message of it has come yet."""

    async def start(self, place: QueueLocation) -> None:
        """Attach.

        Raises:
            Refused: the worker did not take it: `consumer_limit` say.
            NoAnswer: there is no worker.
        """
        self._is_location_certain = place.is_certain
        try:
            await self._attach_at(place.partition)
        except BaseException as error:
            if self._reader is not None and not isinstance(error, Refused):
                await self._detach()  # it may be attached yet, when the worker comes to it
            await self._stop_reading()
            raise
        self._heartbeats = asyncio.create_task(self._run_heartbeats())

    async def close(self, *, detach: bool = True) -> None:
        """Detach, if it is attached. Who waits in `next` gets `Closed`."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait([self._heartbeats])
            self._heartbeats = None
            if detach and self._failure is None:
                await self._detach()
        await self._stop_reading()

    async def next(self) -> tuple[InRecord, Mapping[str, bytes]]:
        """The next record that is dispatched to it, and its headers by name.

        Raises:
            Closed: it is not started, or closed.
            Exception: what went wrong in the background.
        """
        while True:
            reader = self._reading()
            try:
                record = await reader.getone()
            except ConsumerStoppedError:
                continue  # closed, failed, or reads elsewhere
            headers = dict(record.headers)
            if (
                headers.get(h.CONSUMER) == self._name
                and headers.get(h.QUEUE) == self._queue
                and record.offset >= self._first_valid_offset
            ):
                self._is_location_certain = True
                return record, headers

    def check(self) -> None:
        """Raise what went wrong in the background."""
        if self._failure is not None:
            raise self._failure

    def _reading(self) -> AIOKafkaConsumer:
        self.check()
        if self._reader is None:
            raise Closed("the consumer is not started, or closed")
        return self._reader

    async def request(self, kind: str, **fields: object) -> None:
        """Have the worker do something for it, and wait until it did.

        Raises:
            Refused: it did not.
            NoAnswer: there is no worker.
        """
        self.check()
        await self._connection.request(self.partition, {"type": kind, **self._who, **fields})

    async def end(self) -> int:
        """The end of what has been dispatched so far, for `forget`."""
        place = TopicPartition(self._connection.topic(Role.DISPATCHED), self.partition)
        return int((await self._reading().end_offsets([place]))[place])

    def forget(self, end: int) -> None:
        """All that was dispatched before has been given back: pass over what is yet unread."""
        self._first_valid_offset = max(self._first_valid_offset, end)

    # --- being attached --------------------------------------------------------------------------

    async def _attach_at(self, partition: int) -> None:
        """Attach in a partition, and read there. The reader is there first: it misses nothing."""
        reader = await self._connection.reader(Role.DISPATCHED, partition)
        before, self._reader = self._reader, reader
        self.partition, self._first_valid_offset = partition, 0
        if before is not None:
            await stop(before)
        await self._connection.request(partition, self._command)

    async def _attach_again(self) -> None:
        """It was silent for too long, and detached; what it held has been given back."""
        log.warning("%(consumer)s was detached from %(queue)s and attaches again", self._who)
        self._on_lost()
        self.forget(await self.end())
        await self._connection.request(self.partition, self._command)

    async def _follow_queue(self) -> None:
        """If the queue's first message has come in another partition, go there."""
        place = await locate_by_counts(self._connection, self._who["queue"])
        if place is None or not place.is_certain:
            return
        if place.partition != self.partition:
            await self._detach()
            await self._attach_at(place.partition)
        self._is_location_certain = True

    async def _detach(self) -> None:
        """In vain where the brokers are gone: then the worker detaches it for its silence."""
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

    # --- staying alive ---------------------------------------------------------------------------

    async def _run_heartbeats(self) -> None:
        try:
            await self._send_heartbeats()
        except Exception as error:
            log.debug("%s has failed", self._who["consumer"], exc_info=True)
            self._failure = error
            await self._stop_reading()  # whoever waits for a message learns of it

    async def _send_heartbeats(self) -> None:
        """Heartbeats at a steady pace, whether they are answered or not.

        Where brokers or workers are away, that they come back is all there is to wait for.
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
        if not self._is_location_certain:
            await self._follow_queue()
        try:
            async with asyncio.timeout(self._heartbeat_interval_s):
                await self._connection.request(self.partition, {"type": "heartbeat", **self._who})
        except TimeoutError:
            return
        except Refused:  # it is not attached, or its subscription ended with it
            await self._attach_again()
