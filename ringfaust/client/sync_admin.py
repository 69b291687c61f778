"""`Admin` for programs without asyncio."""

from __future__ import annotations

from typing import Unpack

from ringfaust.client.admin import Admin as AsyncAdmin
from ringfaust.client.blocking import SyncResource, blocking, iterating
from ringfaust.client.connection import ConnectOptions


class Admin(SyncResource):
    """Operates queues; see `ringfaust.client.Admin`, which has the same methods.

    ::

        with Admin() as admin:
            for queue in admin.queues("orders.#"):
                print(queue.queue, queue.counts["ready"])
    """

    def __init__(self, **options: Unpack[ConnectOptions]) -> None:
        super().__init__()
        self._inner = AsyncAdmin(**options)

    queues = blocking(AsyncAdmin.queues)
    queue = blocking(AsyncAdmin.queue)
    homes = blocking(AsyncAdmin.homes)
    browse = iterating(AsyncAdmin.browse)
    browse_page = blocking(AsyncAdmin.browse_page)
    message = blocking(AsyncAdmin.message)
    xids = blocking(AsyncAdmin.xids)
    configuration = blocking(AsyncAdmin.configuration)
    history = blocking(AsyncAdmin.history)
    settings_since = blocking(AsyncAdmin.settings_since)
    apply = blocking(AsyncAdmin.apply)
    feature_level = blocking(AsyncAdmin.feature_level)
    raise_level = blocking(AsyncAdmin.raise_level)
    create_queue = blocking(AsyncAdmin.create_queue)
    configure = blocking(AsyncAdmin.configure)
    configure_address = blocking(AsyncAdmin.configure_address)
    delete_queue = blocking(AsyncAdmin.delete_queue)
    pause = blocking(AsyncAdmin.pause)
    resume = blocking(AsyncAdmin.resume)
    purge = blocking(AsyncAdmin.purge)
    remove = blocking(AsyncAdmin.remove)
    move = blocking(AsyncAdmin.move)
    move_oldest = iterating(AsyncAdmin.move_oldest)
    deliver_now = blocking(AsyncAdmin.deliver_now)
    cancel_scheduled = blocking(AsyncAdmin.cancel_scheduled)
    close_consumer = blocking(AsyncAdmin.close_consumer)
    commit_xid = blocking(AsyncAdmin.commit_xid)
    rollback_xid = blocking(AsyncAdmin.rollback_xid)
    retry_partition = blocking(AsyncAdmin.retry_partition)
    skip_record = blocking(AsyncAdmin.skip_record)
