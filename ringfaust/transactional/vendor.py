"""The private APIs of aiokafka that transactions use, behind public names.

`tests/transactional/test_vendor.py` pins each of them. aiokafka 0.14:

- `AIOKafkaClient.send`: replaced on the client of one producer, because its sender repeats a
  request whose response is lost, even one that must not be repeated (R117).
- `AIOKafkaProducer.begin_transaction` and others: a producer whose transaction failed between two
  calls raises AssertionError or IllegalOperation. The real error is in the transaction manager.
- `TransactionManager.begin_transaction`, `maybe_add_partition_to_txn` and `is_in_transaction`: a
  producer adds a partition to its transaction only when it has a batch for it, see `begin_early`.
- `TransactionManager._txn_partitions`, `_pid_and_epoch` and `_sequence_numbers`: what has been
  added, and the epoch, which each transaction of version 2 changes, see `use_version_2`.
- `TransactionManager.increment_sequence_number`: counts too far, see `_Counting`.
- `BatchBuilder._set_producer_state` and `_build`, `AIOKafkaProducer._request_timeout_ms`: what a
  produce request needs, see `Direct`.
- `Sender.sender_task`: wraps an error of its own code in a KafkaError.
- `Fetcher.close`: cancels a fetch that waits for its broker to come back, and lets the
  CancelledError out. `AIOKafkaConsumer.stop` then leaves the connections open, see `stop_client`.
- `Fetcher._fetch_task`: loses its cancellation while it ends the requests of a former assignment.
  `Fetcher.close` then waits for it for ever, see `stop_client`.
- `AIOKafkaProducer.stop`: cancelled while it waits for the brokers, it leaves the sender running,
  with the requests in the local `tasks` of `Sender._sender_routine`, see `_end_sending`.
- `TransactionManager._pid_waiter`: a refused batch leaves a gap in the numbers, which another
  producer id ends. `MessageAccumulator._batch_ttl`: so does one that expires; see `keep_going`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.errors import (
    IllegalOperation,
    InvalidProducerEpoch,
    KafkaError,
    NodeNotReadyError,
    NoError,
    ProducerClosed,
    ProducerFenced,
    for_code,
)
from aiokafka.producer.transaction_manager import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PidAndEpoch,
    TransactionManager,
    TransactionState,
)
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import EndTxnRequest, TxnOffsetCommitRequest

from ringfaust.cancellation import cancellation_is_kept
from ringfaust.transactional.produce_request import OneCopy
from ringfaust.transactional.version_2 import AskVersion, EndTransaction, Produce, has_version_2

FAILED_BETWEEN_CALLS = (AssertionError, IllegalOperation)
"""What a producer raises whose transaction failed between two calls."""

_AGAIN_S = 0.05
"""How long a cancelled task has to end before it is cancelled again."""

_LONG_S = 86_400
"""How long a batch of an idempotent producer waits for a leader: its topic may be deleted."""

_ALL = -1
"""All replicas that are in sync have a batch before it is acknowledged."""

NOT_REPEATED = (EndTxnRequest, TxnOffsetCommitRequest)
"""Requests that a producer sends once. If the response is lost, the request may still be on its
way. Repeated with the same epoch, it could take effect in the next transaction (R117)."""


class SendOnce:
    """Fails the transaction when the response to a request of `NOT_REPEATED` is lost (R117).

    It also writes produce requests with one copy of their batches.

    The producer can then do nothing but stop. The next one with its transactional id gets a new
    epoch, so the brokers refuse the old request if it arrives late.
    """

    def __init__(self, producer: AIOKafkaProducer) -> None:
        client: Any = producer.client
        self._producer: Any = producer
        self._send: Callable[..., Awaitable[Any]] = client.send

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        """Send a request and return its response."""
        try:
            if _adds_by_itself(self._producer):
                return await self._send_version_2(node_id, request, **options)
            if isinstance(request, ProduceRequest):
                request = OneCopy(request)
            return await self._send(node_id, request, **options)
        except NodeNotReadyError:
            raise  # there was no connection, so it was not sent
        except KafkaError as error:
            if isinstance(request, NOT_REPEATED):
                self._fail(error)
            raise

    async def _send_version_2(self, node_id: int, request: Any, **options: Any) -> Any:
        if isinstance(request, ProduceRequest):
            produce = Produce(request)
            produced = produce.read(await self._send(node_id, produce, **options))
            if produced.is_fenced:  # in version 1 the addition fails, and ends the producer
                self._fail(ProducerFenced())
            return produced
        if not isinstance(request, EndTxnRequest):
            return await self._send(node_id, request, **options)
        end = EndTransaction(request)
        ended = end.read(await self._send(node_id, end, **options))
        if ended.error_code == NoError.errno:
            transactions = self._producer._txn_manager  # noqa: SLF001
            transactions.go_on_with(ended.producer_id, ended.producer_epoch)
        return ended

    def _fail(self, error: KafkaError) -> None:
        transactions = self._producer._txn_manager  # noqa: SLF001
        if transactions.state is TransactionState.READY:
            return  # the transaction is not the sender's: `Direct` raises the error
        transactions.fatal_error(error)
        # Retrieve the error, which asyncio would log if nobody waits for the commit.
        transactions.wait_for_transaction_end().exception()


def send_once(producer: AIOKafkaProducer) -> None:
    """Make a transactional producer keep R117. Call it before `start`."""
    client: Any = producer.client
    client.send = SendOnce(producer).send
    transactions: Any = producer._txn_manager  # noqa: SLF001
    transactions.__class__ = _Counting


class _Counting(TransactionManager):  # type: ignore[misc]
    """Numbers records as brokers do: 0 follows 2,147,483,647. aiokafka's would be negative."""

    def increment_sequence_number(self, tp: TopicPartition, increment: int) -> None:
        """Count the records of a batch."""
        self._sequence_numbers[tp] = (self._sequence_numbers[tp] + increment) % 2**31

    def go_on_with(self, producer_id: int, producer_epoch: int) -> None:
        """Use another epoch from the next transaction on, and number its batches from 0."""
        self._pid_and_epoch = PidAndEpoch(producer_id, producer_epoch)
        self._sequence_numbers.clear()

    def begin_anew(self) -> None:
        """Let the sender ask for another producer id, before it sends the next batch."""
        self.go_on_with(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self._pid_waiter = asyncio.get_running_loop().create_future()


def keep_going(producer: Any) -> None:
    """Let an idempotent producer go on, whatever the brokers do. Call it before `start`.

    A batch waits a day for a leader before it expires. The brokers may have stored it already, and
    sending it again would duplicate it. A batch that they refuse leaves a gap in the numbers of its
    partition, so they would refuse every later one. A new producer id starts the numbers again.
    """
    producer._message_accumulator._batch_ttl = _LONG_S  # noqa: SLF001
    client, transactions = producer.client, producer._txn_manager  # noqa: SLF001
    transactions.__class__ = _Counting
    send = client.send

    async def send_and_look(node_id: int, request: Any, **options: Any) -> Any:
        answer = await send(node_id, request, **options)
        if isinstance(request, ProduceRequest) and _is_refused(answer):
            transactions.begin_anew()
        return answer

    client.send = send_and_look


def _is_refused(produced: Any) -> bool:
    """Whether one of its batches is not stored, and is not sent again."""
    codes = {code for _, partitions in produced.topics for _, code, *_ in partitions}
    return not all(for_code(code).retriable for code in codes - {NoError.errno})


class _AddedByProduce(_Counting):
    """The transactions of a producer whose produce requests add their partitions (KIP-890)."""

    def maybe_add_partition_to_txn(self, tp: TopicPartition) -> None:
        """Take it as added: its first produce request does that."""
        assert self.is_in_transaction()
        self._txn_partitions.add(tp)


def _adds_by_itself(producer: AIOKafkaProducer) -> bool:
    transactions: Any = producer._txn_manager  # noqa: SLF001
    return isinstance(transactions, _AddedByProduce)


class Direct:
    """Transactions of version 2 in two requests, past the many steps of aiokafka's sender.

    A commit of a few records takes 0.4 ms of CPU time instead of 0.9. Use it between two
    transactions of the producer, which repeats what it cannot do.
    """

    def __init__(self, producer: AIOKafkaProducer, node_id: int) -> None:
        self._client: Any = producer.client
        self._node_id = node_id
        self._transactions: Any = producer._txn_manager  # noqa: SLF001
        self._timeout_ms: int = producer._request_timeout_ms  # noqa: SLF001
        self._failure: KafkaError | None = None

    async def produce(self, batches: Sequence[tuple[str, int, Any]]) -> list[int] | None:
        """Send one batch to each of several partitions, which begins a transaction.

        Args:
            batches: each with its topic and partition.

        Returns:
            Their offsets. None: some are not known to be stored. The producer may then produce all
            of them: by their numbers, brokers recognize those that they have.

        Raises:
            KafkaError: an earlier transaction has failed.
        """
        if self._failure is not None:
            raise self._failure
        topics: dict[str, list[tuple[int, Any]]] = {}
        for topic, partition, batch in batches:
            batch._set_producer_state(*self._transactions._pid_and_epoch, 0)  # noqa: SLF001
            topics.setdefault(topic, []).append((partition, batch._build()))  # noqa: SLF001
        transactional_id = self._transactions.transactional_id
        request = ProduceRequest(transactional_id, _ALL, self._timeout_ms, [*topics.items()])
        try:
            produced = await self._client.send(self._node_id, request)
        except KafkaError:
            return None
        offsets = {
            (topic, partition): offset
            for topic, partitions in produced.topics
            for partition, error_code, offset, *_ in partitions
            if error_code == NoError.errno
        }
        if len(offsets) < len(batches):
            return None
        return [offsets[topic, partition] for topic, partition, _ in batches]

    async def end(self) -> None:
        """Commit what was produced.

        Raises:
            ProducerFenced: a newer writer has taken over.
            KafkaError: the outcome is unknown (R117).
        """
        transactions = self._transactions
        producer = transactions._pid_and_epoch  # noqa: SLF001
        request = EndTxnRequest(transactions.transactional_id, *producer, transaction_result=True)
        try:
            ended = await self._client.send(
                self._node_id, request, group=ConnectionGroup.COORDINATION
            )
            if ended.error_code == InvalidProducerEpoch.errno:
                raise ProducerFenced
            if ended.error_code != NoError.errno:
                raise for_code(ended.error_code)
        except KafkaError as error:
            self._failure = error
            raise


async def use_version_2(producer: AIOKafkaProducer) -> Direct | None:
    """Use version 2 of transactions from now on, if that is faster; None: it is not.

    It is with a single broker. Of several, each would add its partitions when it gets the first
    produce request. The coordinator accepts one addition at a time, and a broker repeats a refused
    one after 20 ms (`add.partitions.to.txn.retry.backoff.ms`).

    Call it after `start` and `send_once`, and before the first transaction.

    Raises:
        KafkaError: the brokers cannot be reached.
    """
    client: Any = producer.client
    brokers = list(client.cluster.brokers())
    if len(brokers) != 1:
        return None
    node_id = brokers[0].nodeId
    if not has_version_2(await client.send(node_id, AskVersion())):
        return None
    transactions: Any = producer._txn_manager  # noqa: SLF001
    transactions.__class__ = _AddedByProduce
    return Direct(producer, node_id)


class Stoppable(Protocol):
    """A consumer or a producer of aiokafka."""

    async def stop(self) -> None:
        """Disconnect."""


async def stop_client(client: Stoppable) -> None:
    """Stop a client. Unlike its own `stop`, this ends, whatever the client does just now.

    And it is cancelled if, and only if, somebody does it.
    """
    try:
        await _end_fetching(client)
    finally:
        await _stop(client)


async def _end_fetching(client: Stoppable) -> None:
    fetcher: Any = getattr(client, "_fetcher", None)
    if fetcher is None:
        return
    fetching = fetcher._fetch_task  # noqa: SLF001
    while not fetching.done():
        fetching.cancel()
        await asyncio.wait({fetching}, timeout=_AGAIN_S)


async def _stop(client: Stoppable) -> None:
    try:
        with cancellation_is_kept():
            await client.stop()
    except asyncio.CancelledError:
        await _disconnect(client)
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise


async def _disconnect(client: Stoppable) -> None:
    """Close the connections of a client whose own `stop` did not come so far."""
    if isinstance(client, AIOKafkaProducer):
        await _end_sending(client)
        await client.client.close()
    elif (connections := getattr(client, "_client", None)) is not None:
        await connections.close()


async def _end_sending(producer: Any) -> None:
    """End the sender, which otherwise sends what it has once the brokers are back.

    Who waits for that gets a ProducerClosed.
    """
    sending = producer._sender.sender_task  # noqa: SLF001
    frame = None if sending is None else sending.get_coro().cr_frame
    ending = {sending, *frame.f_locals.get("tasks", ())} if frame else set()
    while ending := {each for each in ending if not each.done()}:
        for each in ending:
            each.cancel()
        await asyncio.wait(ending, timeout=_AGAIN_S)
    accumulator = producer._message_accumulator  # noqa: SLF001
    for batch in [*chain(accumulator._pending_batches, *accumulator._batches.values())]:  # noqa: SLF001
        batch.failure(ProducerClosed())
        batch._drain_waiter.exception()  # noqa: SLF001 - asyncio would log it if nobody waits
    transactions = producer._txn_manager  # noqa: SLF001
    ended = None if transactions is None else transactions.wait_for_transaction_end()
    if ended is not None and not ended.done():
        transactions.fatal_error(ProducerClosed())
        ended.exception()  # as above


def begin_early(producer: AIOKafkaProducer, partitions: Iterable[TopicPartition]) -> None:
    """Begin a transaction, unless one is open, and add partitions to it before there is data.

    Does nothing if the producer has failed. Its next call raises the error.
    """
    transactions: Any = producer._txn_manager  # noqa: SLF001
    if transactions.state is TransactionState.READY:
        transactions.begin_transaction()
    if transactions.is_in_transaction():
        for partition in partitions:
            transactions.maybe_add_partition_to_txn(partition)


def failure_between_calls(producer: AIOKafkaProducer) -> BaseException | None:
    """The error that ended the producer's transaction; None if it is still good."""
    transactions: Any = producer._txn_manager  # noqa: SLF001
    if transactions.state not in (TransactionState.ABORTABLE_ERROR, TransactionState.FATAL_ERROR):
        return None
    ended = transactions.wait_for_transaction_end()
    failed: BaseException | None = ended.exception() if ended is not None and ended.done() else None
    return failed


def sender_bug(producer: AIOKafkaProducer) -> BaseException | None:
    """The programming error that ended the producer's sender task; None if there is none.

    The sender raises it as a KafkaError like any other. Errors of Kafka and of the network are not
    bugs: a new producer may do better.
    """
    task = producer._sender.sender_task  # noqa: SLF001
    if task is None or not task.done() or task.cancelled():
        return None
    error = task.exception()
    cause = error.__cause__ if isinstance(error, KafkaError) else error
    return None if isinstance(cause, KafkaError | OSError) else cause
