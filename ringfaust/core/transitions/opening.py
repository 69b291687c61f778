"""Finds queues and addresses. The first use of one may change it, whatever becomes of the command.

A queue that was decoded gets today's configuration; an address gets the queues that are declared
with it. What is done here is a step of its own: a command that is refused afterwards has not
changed anything, but this stays (R90, R103).

Also: which deliveries an ack settles, since that opens the queues of a session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ringfaust.core import levels, limits
from ringfaust.core.address import Address, address_of, beyond_room, queue_name, row_bytes
from ringfaust.core.model import AckMode, Consumer, Stage
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.attaching import fit_window, watch_leases
from ringfaust.core.transitions.queues import (
    COPY,
    check_after_decoding,
    copy,
    copy_stage,
    create,
    join_address,
)
from ringfaust.core.work import Work

FILL = "fill"
"""A stage of a command: new queues of an address receive what it retains (R114)."""


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
        if address.overfull:
            return None
    work.weigh(work.state.catalog.cost_of(name))
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


def find_address(work: Work, name: str, *, cuts: bool = False) -> Address | None:
    """The address of that name, or None. Queues that are declared with it are created.

    What they get of what it retains may become stages of the command, before all others: from level
    2 on, or if it `cuts` because version 0.2.0 can continue that command, too (R129). If it cannot
    have all of them, none is created, and it is `overfull`: refuse what uses it.
    """
    catalog = work.state.catalog
    address = work.state.address(name)
    if address is None or address.completed is catalog:
        return address
    address.completed, address.overfull = catalog, ""
    members = set(address.members)
    names = [queue_name(name, each) for each in catalog.subscriptions(name)]
    missing = [each for each in names if each not in members]
    if not missing:
        return address
    work.weigh(limits.MEMBER_COST_BYTES * (len(members) + len(names)))
    if beyond := beyond_room([*address.members, *missing]) or _beyond_step(work, missing):
        address.overfull = (
            f"address {name!r} has {len(members):,} queues, and {len(missing):,} more are declared "
            f"with it; it takes at most {beyond}. Delete some of them, or apply a configuration "
            "that declares fewer"
        )
        return address
    work.keep()
    _declare(work, address, missing, cuts=cuts)
    return address


def _declare(work: Work, address: Address, names: list[str], *, cuts: bool) -> None:
    """Create queues that are declared with an address, and send them what that retains (R71)."""
    queues = [create(work, name, {}) for name in names]
    for queue in queues:
        fit_window(work, queue)
        join_address(work, address, queue)
    if work.state.level >= levels.CUTS_MORE:
        fill = Stage(FILL, address.name, (len(address.members) - len(names), len(names), None))
        if not work.defers(fill):
            fill_stage(work, fill)
        return
    for queue in queues:
        stage = Stage(COPY, queue.name)
        if not cuts:
            copy(work, address, queue, None, cuts=False)
        elif not work.defers(stage):
            copy_stage(work, queue, stage)


def fill_stage(work: Work, stage: Stage) -> None:
    """Send some queues of an address as much of what that retains as fits (R71, R114).

    They stand together in the list of its members, so the stage need not list them (R120).
    """
    first, count, after = stage.args
    address = work.state.address(stage.queue)
    if address is None:  # a configuration that has come meanwhile declares it no more
        return
    for done, name in enumerate(address.members[first : first + count]):
        after, is_cut = copy(work, address, opened(work, name), after, cuts=True)
        if is_cut:
            work.stages.append(stage._replace(args=(first + done, count - done, after)))
            return
        after = None


def _beyond_step(work: Work, names: Collection[str]) -> str:
    """What can be created at once, if that is less than these queues; else empty (R121)."""
    catalog = work.state.catalog
    cost = sum([limits.ROW_COST_BYTES + 2 * catalog.cost_of(name) for name in names])
    work.weigh(cost)
    if cost <= limits.STEP_BYTES:  # else looking at all their settings would take too long
        selectors = [catalog.spec(name, {}).selector for name in names]
        cost += limits.CONFIGURED_COST * sum(map(row_bytes, selectors))
    if cost <= limits.STEP_BYTES:
        return ""
    return (
        f"{limits.STEP_BYTES:,} bytes at once, with their settings: each queue counts "
        f"{limits.ROW_COST_BYTES}, its selector {limits.CONFIGURED_COST} times, and "
        f"{2 * limits.PATTERN_COST_BYTES} for each word of its name and each pattern"
    )


# --- what an ack settles -------------------------------------------------------------------------


def covered(work: Work, queue: Queue, consumer: Consumer, number: int) -> list[tuple[int, Queue]]:
    """The deliveries that the ack of one settles, in order, each with its queue.

    In mode `client` these are all that were delivered before in the whole session (R16).
    """
    if consumer.ack_mode is not AckMode.CLIENT:
        return [(number, queue)]
    found: list[tuple[int, Queue]] = []
    for other_queue, other in _companions(work, queue, consumer):
        work.weigh(limits.LOOK_COST_BYTES * len(other.positions))
        found += [(each, other_queue) for each in other.positions if each <= number]
    return sorted(found, key=lambda pair: pair[0])


def _companions(work: Work, queue: Queue, consumer: Consumer) -> Iterable[tuple[Queue, Consumer]]:
    """The consumers of a consumer's session; without a session only itself."""
    if not consumer.session:
        yield queue, consumer
        return
    for (of, name), _ in list(work.state.session(consumer.session)):
        other_queue = opened(work, of)
        yield other_queue, other_queue.consumers[name]
