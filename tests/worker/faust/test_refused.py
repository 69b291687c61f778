"""What a worker does that its group refuses while nobody fetches."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import InvalidSessionTimeoutError, KafkaError

from ringfaust.worker.faust import membership
from ringfaust.worker.faust.group import RefusedByGroup
from ringfaust.worker.faust.membership import Membership
from tests.background import running, until


class Thread:
    """What `_watch_group` needs of a thread."""

    def __init__(self, error: Exception | None = None, *, has_twin: bool = False) -> None:
        conf = SimpleNamespace(
            id="app", consumer_group_instance_id="host-1", broker_session_timeout=2.0
        )
        self.app = SimpleNamespace(conf=conf)
        self.group_error = error
        self._has_twin = has_twin
        self._refused_with: type[Exception] | None = None
        self.tries = 0

    def try_group_again(self) -> None:
        self.tries += 1


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_GROUP_CHECK_S", 0)


async def watch(thread: Any) -> None:
    async with asyncio.timeout(30):
        await Membership._watch_group(thread)


async def test_a_worker_with_the_identity_of_another_ends_and_says_why() -> None:
    """R125: two workers with one copied folder would otherwise replace each other in turns."""
    with pytest.raises(RefusedByGroup, match="joined group app as host-1.*Delete the file"):
        await watch(Thread(has_twin=True))


async def test_a_session_that_the_brokers_do_not_accept_ends_the_worker() -> None:
    with pytest.raises(RefusedByGroup, match="do not accept session_timeout_ms: 2000"):
        await watch(Thread(InvalidSessionTimeoutError()))


async def test_another_error_is_told_once_and_the_client_asks_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A fetch would raise it, but the member of the group fetches nothing."""
    thread: Any = Thread(KafkaError("what"))
    async with running(watch(thread)):
        await until(lambda: thread.tries >= 3)
        assert caplog.text.count("refuse this worker in group app") == 1
        Membership._on_member(thread, 7.0)
        await until(lambda: thread.tries >= 6)
    assert caplog.text.count("refuse this worker in group app") == 2
