"""The client without asyncio: started twice, closed in parts, or carried into a forked process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from ringfaust.client import ClientError, Closed
from ringfaust.client.blocking import EventLoopThread
from ringfaust.client.connection import ConnectOptions
from ringfaust.client.options import AckMode
from ringfaust.client.sync import RingConsumer, RingProducer, Session
from ringfaust.testing import MemoryBroker


def test_a_consumer_of_a_session_is_closed_alone(
    memory: MemoryBroker, where: ConnectOptions
) -> None:
    with Session(**where) as session:
        session.send("orders", "a", id="a")
        session.commit()
        with session.consumer("orders") as consumer:
            message = consumer.receive()
            assert message is not None
            message.ack()
            session.commit(confirm=True)
        consumer.close()
        session.consumer("invoices").close()
        session.send("orders", "b", id="b")
        session.commit()
    counts = memory.counts("orders")
    assert (counts.added, counts.acked) == (2, 1)


@pytest.mark.parametrize("kind", [lambda **w: RingConsumer("orders", **w), RingProducer, Session])
def test_a_second_start_is_refused_and_the_first_stays(
    where: ConnectOptions, kind: Callable[..., RingConsumer | RingProducer | Session]
) -> None:
    before = threading.active_count()
    client = kind(**where)
    client.start()
    with pytest.raises(ClientError, match="started"):
        client.start()
    with pytest.raises(ClientError, match="started"), client:
        pass
    client.close()
    assert threading.active_count() == before


def in_a_child(work: Callable[[], None]) -> str:
    """The text of the ClientError that the work raises in a forked process; empty: none."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            work()
        except ClientError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_told_to_create_a_client_of_its_own(where: ConnectOptions) -> None:
    with RingProducer(**where) as producer:

        def sends() -> None:
            producer.send("orders", "a")

        said = in_a_child(sends)
        assert str(os.getpid()) in said
        assert "of its own" in said
        assert in_a_child(producer.close) == ""
        producer.send("orders", "b")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_forked_processes_do_not_share_a_name(where: ConnectOptions) -> None:
    producer = RingProducer(**where)
    assert "of its own" in in_a_child(producer.start)
    producer.start()
    producer.close()


def test_a_loop_over_messages_ends_when_the_consumer_is_closed(where: ConnectOptions) -> None:
    """As with asyncio."""
    with RingProducer(**where) as producer:
        producer.send("orders", "a", id="a")
    with RingConsumer("orders", **where) as consumer:
        for message in consumer:
            message.ack()
            consumer.close()
    with pytest.raises(Closed):
        next(iter(RingConsumer("orders", **where)))


@pytest.fixture
def loop_thread() -> Iterator[EventLoopThread]:
    thread = EventLoopThread()
    thread.open()
    yield thread
    thread.close()


async def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(work)


def test_the_loop_does_nothing_during_a_call(loop_thread: EventLoopThread) -> None:
    works = False

    async def work() -> None:
        nonlocal works
        while True:
            works = True
            time.sleep(0.001)  # it gives up the GIL
            works = False
            await asyncio.sleep(0)

    task = loop_thread.run(begin(work()))
    for _ in range(50):
        assert not loop_thread.call(lambda: works)
        time.sleep(0.0005)
    loop_thread.call(task.cancel)


def test_ctrl_c_cancels_what_runs(loop_thread: EventLoopThread) -> None:
    is_cancelled = threading.Event()

    async def work() -> None:
        try:
            while True:  # a signal that arrives just before the thread blocks does not wake it
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                await asyncio.sleep(1)
        finally:
            is_cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        loop_thread.run(work())
    assert is_cancelled.wait(30)


def test_a_signal_handler_may_interrupt_a_call_and_end_the_client() -> None:
    """It runs in the thread that has its turn, so it must let the loop have one."""
    thread = EventLoopThread()
    thread.open()

    async def answer() -> int:
        await asyncio.sleep(0.001)
        return 5

    def interrupted() -> int:
        found = thread.run(answer())
        thread.close()
        return found

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(thread.call, interrupted).result(30) == 5
    with pytest.raises(Closed):
        thread.call(len, "")


@pytest.mark.parametrize("ack_mode", ["individual", "auto", "dups_ok", "client"])
def test_what_is_here_already_is_received_and_acked_without_a_coroutine(
    memory: MemoryBroker, where: ConnectOptions, ack_mode: AckMode
) -> None:
    """One for each took eight times the CPU time."""
    with RingProducer(**where) as producer, producer.transaction():
        for _ in range(200):
            producer.send("orders", "a")
    with RingConsumer("orders", credit=300, ack_mode=ack_mode, **where) as consumer:
        with patch.object(
            EventLoopThread, "run", autospec=True, side_effect=EventLoopThread.run
        ) as ran:
            for _, message in zip(range(200), consumer, strict=False):
                if ack_mode in ("individual", "client"):
                    message.ack()
            assert consumer.receive(timeout_ms=0) is None
        assert ran.call_count < 50
        consumer.flush()
    assert memory.counts("orders").acked == 200


def test_what_is_interrupted_cleans_up_before_the_thread_ends() -> None:
    """Ctrl-C in `start`, for example: a consumer that may be attached is detached."""
    thread, begun, is_clean = EventLoopThread(), threading.Event(), threading.Event()

    async def works() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            is_clean.set()

    thread.open()
    assert thread._loop is not None
    asyncio.run_coroutine_threadsafe(works(), thread._loop)
    assert begun.wait(30)
    thread.close()
    assert is_clean.is_set()


def test_an_exception_that_ends_a_consumer_of_a_session_leaves_nothing_to_commit(
    memory: MemoryBroker, where: ConnectOptions
) -> None:
    with Session(**where) as session:
        session.send("orders", "a")
        session.commit()
        with pytest.raises(ArithmeticError), session.consumer("orders") as consumer:
            assert consumer.receive() is not None
            raise ArithmeticError
        session.send("invoices", "it failed")
        session.commit()
    assert (memory.counts("orders").ready, memory.counts("invoices").added) == (1, 1)
