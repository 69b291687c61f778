"""How queues are created, configured, emptied and deleted, and how addresses feed them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ringfaust.core import effects as e
from ringfaust.core import levels, limits
from ringfaust.core.address import Address, address_of
from ringfaust.core.model import Counts, EvictReason, Message, Stage, cost_bytes
from ringfaust.core.new import send_of
from ringfaust.core.queue import Queue, QueueRow
from ringfaust.core.transitions.attaching import deadline, fit_window, leave, promote, watch_leases
from ringfaust.core.transitions.delivering import dispatch
from ringfaust.core.transitions.entering import enter, forget_sent
from ringfaust.core.transitions.leaving import evict_down_to, expire, remove
from ringfaust.core.transitions.placing import erase_groups
from ringfaust.core.work import Work

FIT, DELETE, PURGE, COPY, TAKE_UP = "fit", "delete", "purge", "copy", "take up"
"""Stages of commands (R114)."""
KEEP_LESS = "keep less"
APPLY, RAISE_LEVEL = "apply", "raise level"
"""Stages that are performed at once."""


# --- settings ------------------------------------------------------------------------------------


def create(work: Work, name: str, settings: dict[str, object]) -> Queue:
    """Create a queue with settings of its own, which are valid (R90)."""
    queue = work.state.create(name, settings)
    date_settings(work, queue, settings)
    queue.applied = None
    return queue


def check_after_decoding(work: Work, queue: Queue) -> None:
    """Apply a new configuration (R90)."""
    applied, queue.applied = queue.applied or {}, None
    if queue.set_fields != applied:
        work.state.use(queue)
        work.keep()
        _take_up(work, queue, applied)


def _take_up(work: Work, queue: Queue, applied: Mapping[str, object]) -> None:
    """Tell how its settings differ from those `applied` before, and do what they demand (R90)."""
    now = queue.set_fields
    work.weigh(queue.row_cost)
    if queue.sequence or queue.orders:
        changed = {name for name in {*now, *applied} if now.get(name) != applied.get(name)}
        fields = {name: getattr(queue.spec, name) for name in sorted(changed)}
        work.effects.append(e.Configured(queue.name, fields, False))
    fit(work, queue)


def apply_stage(work: Work, stage: Stage) -> None:
    """Use another configuration from here on (R128)."""
    configuration, catalog = stage.args
    work.state.save_rows()
    work.state.configure(configuration, catalog)
    work.effects.append(
        e.Applied("", configuration.revision, configuration.who, configuration.text)
    )


def raise_level_stage(work: Work, stage: Stage) -> None:
    """Use a feature level from here on (R129)."""
    (level,) = stage.args
    work.state.raise_level(level)


def keep_less_stage(work: Work, stage: Stage) -> None:
    """Drop what addresses retain beyond their counts, as much as fits (R71, R114, R128).

    Of the address that the stage names; without a name, of all behind the name in `args`.
    """
    (after,) = stage.args
    state = work.state
    if stage.queue:
        address = state.address(stage.queue)
        if address is not None and not _keep_less(work, address):
            work.stages.append(stage)
        return
    for name, _ in state.address_rows.scan_all(after, limits.REFILL):
        work.weigh(limits.ROW_COST_BYTES + state.catalog.cost_of(name))
        address = state.address(name)
        if work.is_full or not (address is None or _keep_less(work, address)):
            work.stages.append(stage._replace(args=(after,)))
            return
        after = name


def _keep_less(work: Work, address: Address) -> bool:
    """The same of one address. False if the transaction is full before that."""
    while (oldest := address.first_beyond()) is not None:
        if not work.has_room:
            return False
        work.spend(cost_bytes(oldest))
        work.state.use_address(address)
        address.drop_first()
    return True


def take_up_stage(work: Work, stage: Stage) -> None:
    """Give the queues behind a name what the configuration says, as many as fit (R114, R128)."""
    (after,) = stage.args
    for name, row in work.state.queue_rows.scan_all(after, limits.REFILL):
        if work.is_full:
            work.stages.append(stage._replace(args=(after,)))
            return
        work.spend(work.state.catalog.cost_of(name))
        queue = work.state.queues.get(name)
        held = Counts(*row.counts) if queue is None else queue.counts
        work.left_transitions -= held.delivering  # its first use decodes them
        _reconfigure(work, name, row)
        after = name


def _reconfigure(work: Work, name: str, row: QueueRow) -> None:
    """Give a queue what the configuration says. Whether it is decoded changes nothing (R102)."""
    state = work.state
    queue = state.queues.get(name)
    settings = row.settings if queue is None else queue.settings
    spec = state.catalog.spec_of_stored(name, settings)
    applied = row.applied if queue is None else queue.set_fields
    if queue is not None and queue.applied is not None:
        applied = queue.applied
    if queue is not None:
        queue.use_spec(spec)
        queue.is_passed_over = state.catalog.declares_address(name)
    if spec.set_fields() == applied:
        return
    if queue is None:
        queue = state.queue(name)
        assert queue is not None, "it has a row"
    first_use, queue.applied = queue.applied is not None, None
    state.use(queue)
    if first_use:
        watch_leases(work, queue)
    _take_up(work, queue, applied)


def date_settings(work: Work, queue: Queue, given: Iterable[str]) -> None:
    """Note when settings were set (R90), if the feature level allows that (R129)."""
    if work.state.level >= levels.DATES_SETTINGS:
        known = {**queue.set_ms, **dict.fromkeys(given, work.now)}
        queue.set_ms = {name: known[name] for name in queue.settings if name in known}


def fit(work: Work, queue: Queue) -> None:
    """Do what changed settings demand at once (R5, R11, R12, R13)."""
    work.state.use(queue)
    expire(work, queue)
    stage = Stage(FIT, queue.name)
    if not work.defers(stage):
        fit_stage(work, queue, stage)


def fit_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Do as much of that as fits into this transaction (R114)."""
    work.state.use(queue)
    is_done = _shrink(work, queue) and (queue.dedups or forget_sent(work, queue))
    if not (is_done and fit_window(work, queue) and promote(work, queue, is_cut=True)):
        work.stages.append(stage)
        return
    for consumer in queue.consumers.values():
        if at_ms := deadline(queue, consumer):
            work.state.wake_by(queue, at_ms)
    if queue.has_open_consumer():  # else Artemis does not look at an expired head
        dispatch(work, queue)


def _shrink(work: Work, queue: Queue) -> bool:
    """Trim the ring if it is eager to (R5). False if some of that is left (R114)."""
    spec = queue.spec
    if spec.shrink != "eager" or spec.ring_size < 0:
        return True
    return evict_down_to(work, queue, spec.ring_size, EvictReason.SHRINK)


# --- the end of a queue --------------------------------------------------------------------------


def purge_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Evict as many ready messages as fit into this transaction (R90, R114)."""
    work.state.use(queue)
    if not evict_down_to(work, queue, 0, EvictReason.PURGE):
        work.stages.append(stage)


def pause(queue: Queue, what: str) -> None:
    """Pause pulling or dispatch; it may be paused already."""
    queue.paused = tuple(sorted({*queue.paused, what}))


def delete_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Empty the queue, as far as that fits into this transaction, and delete it (R90, R114)."""
    work.state.use(queue)
    pause(queue, "dispatch")
    if not (_empty(work, queue) and erase_groups(work, queue)):
        work.stages.append(stage)
        return
    work.state.clear_wake(queue)
    queue.check()
    work.effects.append(e.Deleted(queue.name, queue.counts.as_dict()))
    queue.history.erase()
    work.state.delete(queue)
    if of := address_of(queue.name):
        work.state.leave_address(of, queue.name)


def _empty(work: Work, queue: Queue) -> bool:
    """Detach all consumers, and evict or remove all messages (R70, R90)."""
    for consumer in list(queue.consumers.values()):
        if not (work.has_room and leave(work, queue, consumer, timeout=False)):
            return False
    if not evict_down_to(work, queue, 0, EvictReason.PURGE):
        return False
    while (row := queue.scheduled.first()) is not None:
        if not work.has_room:
            return False
        work.spend(cost_bytes(row[1]))
        remove(work, queue, row[1])
    return forget_sent(work, queue)


def auto_delete(work: Work) -> None:
    """Delete the non-durable queues whose last consumer has left (R70)."""
    queues, work.to_auto_delete = work.to_auto_delete, []
    for queue in dict.fromkeys(queues):
        stage = Stage(DELETE, queue.name)
        is_there = work.state.queues.get(queue.name) is queue
        if is_there and stage not in work.stages:
            work.state.use(queue)
            expire(work, queue)
            if not work.defers(stage):
                delete_stage(work, queue, stage)


# --- addresses -----------------------------------------------------------------------------------


def join_address(work: Work, address: Address, queue: Queue) -> None:
    """Make a queue a member of an address (R70)."""
    work.state.use_address(address)
    work.state.use(queue)
    address.join(queue.name)


def copy_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Send a queue as much of what its address retains as fits into this transaction (R71)."""
    work.state.use(queue)
    address = work.state.address(address_of(queue.name))
    if address is None:  # a configuration that has come meanwhile declares it no more
        return
    after, is_cut = copy(work, address, queue, stage.args[0] if stage.args else None, cuts=True)
    if is_cut:
        work.stages.append(stage._replace(args=(after,)))


def copy(work: Work, address: Address, queue: Queue, after: Any, *, cuts: bool) -> tuple[Any, bool]:
    """Send a queue what its address retains behind the place `after` (R71).

    `cuts`: stop when this transaction is full (R114).

    Returns:
        The last place, and whether the transaction is full before the next one.
    """
    now = work.now
    by_priority = queue.policy.sorts_copies and not address.policy.sorts_copies
    if by_priority and work.state.level < levels.CUTS_MORE:
        cuts = False
    for place, message, is_its_turn in _retained(address, after, by_priority=by_priority):
        if cuts and work.is_full:
            return after, True
        work.spend(cost_bytes(message))
        after = place
        if not is_its_turn or 0 < message.expires_at_ms <= now:
            continue
        if queue.selector is not None:
            work.weigh(queue.selector.cost_of(message))
        if queue.selector is None or queue.selector.matches(message):
            enter(work, queue, send_of(message, queue.name, now))
    return after, False


def _retained(
    address: Address, after: Any, *, by_priority: bool
) -> Iterator[tuple[Any, Message, bool]]:
    """What an address retains behind a place: the place of each, and whether it is its turn.

    `by_priority`: read all for each priority, because they are stored by age (C11). None of them is
    kept in memory (R121).
    """
    if not address.spec.retroactive_count:
        return
    if not by_priority:
        for key, message in address.retained.walk(after):
            yield key, message, True
        return
    first, last = after or (limits.PRIORITIES - 1, None)
    for priority in range(first, -1, -1):
        for key, message in address.retained.walk(last if priority == first else None):
            yield (priority, key), message, message.priority == priority
