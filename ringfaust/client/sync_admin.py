"""`Admin` for programs without asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from ringfaust.client.admin import Admin as AsyncAdmin
from ringfaust.client.blocking import SyncResource
from ringfaust.client.connection import ConnectOptions

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Admin, P], T]:
    @wraps(method)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(method(self.inner, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncAdmin, P], AsyncIterator[T]],
) -> Callable[Concatenate[Admin, P], Iterator[T]]:
    @wraps(method)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = method(self.inner, *args, **kwargs)

        async def step() -> list[T]:
            async for each in found:
                return [each]
            return []

        while one := self.run(step()):
            yield from one

    return call


class Admin(SyncResource):
    """Operates queues; see `ringfaust.client.Admin`, which has the same methods.

    ::

        with Admin() as admin:
            for queue in admin.queues("orders.#"):
                print(queue.queue, queue.counts["ready"])
    """

    def __init__(self, **options: Unpack[ConnectOptions]) -> None:
        super().__init__()
        self.inner = self._inner = AsyncAdmin(**options)
        self.run = self._loop.run

    queues = _blocking(AsyncAdmin.queues)
    queue = _blocking(AsyncAdmin.queue)
    homes = _blocking(AsyncAdmin.homes)
    browse = _iterating(AsyncAdmin.browse)
    browse_page = _blocking(AsyncAdmin.browse_page)
    message = _blocking(AsyncAdmin.message)
    xids = _blocking(AsyncAdmin.xids)
    configuration = _blocking(AsyncAdmin.configuration)
    history = _blocking(AsyncAdmin.history)
    settings_since = _blocking(AsyncAdmin.settings_since)
    apply = _blocking(AsyncAdmin.apply)
    feature_level = _blocking(AsyncAdmin.feature_level)
    raise_level = _blocking(AsyncAdmin.raise_level)
    create_queue = _blocking(AsyncAdmin.create_queue)
    configure = _blocking(AsyncAdmin.configure)
    configure_address = _blocking(AsyncAdmin.configure_address)
    delete_queue = _blocking(AsyncAdmin.delete_queue)
    pause = _blocking(AsyncAdmin.pause)
    resume = _blocking(AsyncAdmin.resume)
    purge = _blocking(AsyncAdmin.purge)
    remove = _blocking(AsyncAdmin.remove)
    move = _blocking(AsyncAdmin.move)
    move_oldest = _iterating(AsyncAdmin.move_oldest)
    deliver_now = _blocking(AsyncAdmin.deliver_now)
    cancel_scheduled = _blocking(AsyncAdmin.cancel_scheduled)
    close_consumer = _blocking(AsyncAdmin.close_consumer)
    commit_xid = _blocking(AsyncAdmin.commit_xid)
    rollback_xid = _blocking(AsyncAdmin.rollback_xid)
    retry_partition = _blocking(AsyncAdmin.retry_partition)
    skip_record = _blocking(AsyncAdmin.skip_record)
