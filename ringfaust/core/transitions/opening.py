"""Finds queues and addresses. The first use of one may change it, whatever becomes of the command.

A queue that was decoded gets today's configuration; an address gets the queues that are declared
with it. What is done here is a step of its own: a command that is refused afterwards has not
changed anything, but this stays (R90, R103).
"""

from __future__ import annotations

from ringfaust.core.address import Address, address_of, queue_name
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.attaching import watch_leases
from ringfaust.core.transitions.queues import check_after_decoding, create_declared
from ringfaust.core.work import Work


def find(work: Work, name: str) -> Queue | None:
    """The queue of that name, checked on its first use; None: there is none."""
    queue = work.state.queues.get(name)
    if queue is not None and queue.applied is None:
        return queue
    # Not whenever a queue is decoded: how long it stays decoded must change nothing (R102).
    of = address_of(name)
    address = work.state.address(of) if of else None
    if address is not None and name not in address.members:
        find_address(work, address.name)
    queue = work.state.queue(name)
    if queue is not None and queue.applied is not None:
        check_after_decoding(work, queue)
        watch_leases(work, queue)
    return queue


def opened(work: Work, name: str) -> Queue:
    """As `find`, of a queue that is known to exist."""
    queue = find(work, name)
    assert queue is not None, f"queue {name!r} has members, deliveries or stages"
    return queue


def find_address(work: Work, name: str) -> Address | None:
    """The address of that name, or None. Queues that are declared with it are created."""
    address = work.state.address(name)
    if address is None:
        return None
    declared = work.state.catalog.subscriptions(name)
    names = [queue_name(name, each) for each in declared]
    missing = [each for each in names if each not in address.members]
    if missing:
        work.keep()
    for each in missing:
        create_declared(work, address, each)
    return address


def next_due(work: Work) -> Queue | None:
    """The queue that has to be swept first, or None if none has to be swept now."""
    key = work.state.wakes.first_key()
    if key is None or key[0] > work.now:
        return None
    return opened(work, key[1])
