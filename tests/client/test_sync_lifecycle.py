"""The client without asyncio: started twice, closed in parts, or carried into a forked process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from ringfaust.client import ClientError
from ringfaust.client.connection import ConnectOptions
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
