"""Checks an operator's commands: queues and addresses, pauses, single messages (R34, R71, R90)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ringfaust.core import commands as c
from ringfaust.core import levels, limits
from ringfaust.core.address import Address, address_of, beyond_room, queue_name
from ringfaust.core.admission import beyond_limits, turned_away
from ringfaust.core.catalog import (
    SUBSCRIPTIONS,
    Catalog,
    Configuration,
    beyond_patterns,
    catalog_of,
)
from ringfaust.core.checks.refusal import (
    CommandRefused,
    bad,
    beyond,
    check_given_selector,
    known_queue,
)
from ringfaust.core.model import Message, Refusal, Stage, cost_bytes
from ringfaust.core.new import send_of, waiting_send
from ringfaust.core.queue import SCHEDULED, Queue
from ringfaust.core.settings import FIELD_NAMES
from ringfaust.core.transitions.opening import find_address
from ringfaust.core.transitions.operating import (
    CONFIGURE,
    CONFIGURE_ADDRESS,
    CREATE,
    MAKE_DUE,
    MOVE_OUT,
    PAUSE,
    RESUME,
    TAKE_OUT,
)
from ringfaust.core.transitions.queues import (
    APPLY,
    COPY,
    DELETE,
    FIT,
    KEEP_LESS,
    PURGE,
    RAISE_LEVEL,
    TAKE_UP,
)
from ringfaust.core.transitions.sending import ENTER
from ringfaust.core.transitions.settling import EXPIRE
from ringfaust.core.transitions.sweeping import SWEEP
from ringfaust.core.work import Work
from ringfaust.errors import BadSetting

REMOVE, MOVE, CANCEL, DELIVER_NOW = "remove", "move", "cancel_scheduled", "deliver_now"
SEARCHES: Final = frozenset((REMOVE, MOVE, CANCEL, DELIVER_NOW))
"""Stages that look for a message, through several transactions if need be (R114)."""

_NOT_FOUND = {
    REMOVE: "no ready or scheduled message has that id",
    MOVE: "no ready or scheduled message has that id",
    CANCEL: "no scheduled message has that id",
    DELIVER_NOW: "no scheduled message has that id",
}

# --- addresses -----------------------------------------------------------------------------------


def known_address(work: Work, name: str) -> Address:
    """The address of that name.

    Raises:
        CommandRefused: there is none, or it cannot have all queues that are declared with it.
    """
    address = find_address(work, name)
    if address is None:
        raise CommandRefused(Refusal.UNKNOWN_QUEUE, name, f"no address {name!r}")
    if address.overfull:
        raise beyond(name, address.overfull)
    return address


def configure_address(work: Work, configure: c.ConfigureAddress) -> list[Stage]:
    """Change settings of an address (R71, R90)."""
    address = known_address(work, configure.address)
    settings = {**address.settings, **configure.settings}
    try:
        spec = work.state.catalog.address(address.name, settings)
    except BadSetting as error:
        raise bad(address.name, str(error)) from error
    assert spec is not None
    if spec.routing == "anycast" and len(address.members) > 1:
        raise bad(address.name, f"it has {len(address.members)} queues; anycast allows one")
    return [
        Stage(CONFIGURE_ADDRESS, "", (address.name, configure.settings, settings)),
        Stage(KEEP_LESS, address.name, ("",)),
    ]


# --- the configuration ---------------------------------------------------------------------------


def apply(work: Work, apply: c.Apply) -> list[Stage]:
    """Use another configuration, which is newer than the present one (R128)."""
    present = work.state.configuration
    if present is not None and apply.revision <= present.revision:
        found = (present.revision, present.document, present.who)
        if (apply.revision, apply.configuration, apply.who) == found:
            return []  # a new partition has begun with it
        text = (
            f"{present.who or 'somebody'} has applied revision {present.revision} before; "
            "look at that one, and apply yours again"
        )
        raise bad(f"revision {apply.revision}", text)
    try:
        catalog = catalog_of(apply.configuration)
    except BadSetting as error:
        raise bad(f"revision {apply.revision}", str(error)) from error
    _check_size(f"revision {apply.revision}", apply.configuration, catalog)
    configuration = Configuration(
        apply.revision, apply.configuration, apply.who, apply.text, work.now
    )
    return [
        Stage(APPLY, "", (configuration, catalog)),
        Stage(KEEP_LESS, "", ("",)),
        Stage(TAKE_UP, "", ("",)),
    ]


def _check_size(about: str, document: Mapping[str, Any], catalog: Catalog) -> None:
    """Check that what a configuration declares is bounded (R120)."""
    if text := beyond_patterns(catalog.patterns):
        raise beyond(about, text)
    for name, fields in document.get("addresses", {}).items():
        declared = [queue_name(name, each) for each in fields.get(SUBSCRIPTIONS, {})]
        if most := beyond_room(declared):
            text = (
                f"`addresses`: {name[:80]!r} has {len(declared):,} subscriptions; an address takes"
            )
            raise beyond(about, f"{text} at most {most}")


def raise_level(work: Work, raised: c.RaiseLevel) -> list[Stage]:
    """Use a feature level from here on, if this version supports it (R129)."""
    if raised.level > levels.NEWEST:
        text = f"this worker supports levels {levels.OLDEST} to {levels.NEWEST}"
        raise bad(f"level {raised.level}", text)
    if raised.level <= work.state.level:
        return []
    return [Stage(RAISE_LEVEL, "", (raised.level,))]


# --- queues --------------------------------------------------------------------------------------


def create_queue(work: Work, create: c.CreateQueue) -> list[Stage]:
    """Create a queue; one named `address::name` joins that address (R71, R90)."""
    name = create.queue
    address_name = address_of(name)
    work.weigh(
        3 * work.state.catalog.cost_of(name)
    )  # each compares the name: address, settings, creation
    if find_address(work, name) is not None:
        raise bad(name, "an address has that name")
    address = known_address(work, address_name) if address_name else None
    if address is not None:
        if name == queue_name(address_name, ""):
            raise bad(name, "a queue of an address is named address::name")
        if address.spec.routing == "anycast" and address.members:
            raise bad(name, f"an anycast address has one queue, {address.members[0]!r}")
        _check_room(work, address, name)
    if not name or len(name) > limits.NAME_CHARS:
        raise bad(name, f"a queue's name has from 1 to {limits.NAME_CHARS} characters")
    if work.state.queue(name) is not None:
        raise bad(name, "a queue of that name exists; change it with configure")
    try:
        work.state.catalog.spec(name, create.settings)
    except BadSetting as error:
        raise bad(name, str(error)) from error
    check_given_selector(work, name, str(create.settings.get("selector") or ""))
    stages = [Stage(CREATE, "", (name, create.settings, address_name))]
    return stages if address is None else [*stages, Stage(COPY, name)]


def _check_room(work: Work, address: Address, queue: str) -> None:
    """Check that the address may have another queue (R120)."""
    work.weigh(limits.MEMBER_COST_BYTES * len(address.members))
    if most := beyond_room([*address.members, queue]):
        has = f"address {address.name!r} has {len(address.members):,} queues"
        raise beyond(queue, f"{has}; it takes at most {most}")


def configure(work: Work, configure: c.Configure) -> list[Stage]:
    """Change settings of a queue, or take back those that are None (R5, R11, R90)."""
    queue = known_queue(work, configure.queue)
    settings = {**queue.settings, **configure.settings}
    taken_back = [each for each in FIELD_NAMES if each in settings and settings[each] is None]
    for each in taken_back:
        del settings[each]
    try:
        spec = work.state.catalog.spec(queue.name, settings)
    except BadSetting as error:
        raise bad(queue.name, str(error)) from error
    check_given_selector(work, queue.name, str(configure.settings.get("selector") or ""))
    # What is said holds by itself: who replays the events does not have the file.
    told = {**configure.settings, **{each: getattr(spec, each) for each in taken_back}}
    return [
        Stage(CONFIGURE, queue.name, (told, settings)),
        Stage(EXPIRE, queue.name),
        Stage(FIT, queue.name),
    ]


def delete_queue(work: Work, delete: c.DeleteQueue) -> list[Stage]:
    """Delete a queue, and take it out of its address (R90)."""
    queue = _used_queue(work, delete.queue)
    attached = queue.consumers.values()
    if queue.orphans or any([len(each.positions) < each.in_flight for each in attached]):
        text = "a distributed transaction has settled deliveries of it; decide that first"
        raise bad(queue.name, text)
    return [Stage(EXPIRE, queue.name), Stage(DELETE, queue.name)]


def pause(work: Work, pause: c.Pause) -> list[Stage]:
    """Pause pulling or dispatch (R90)."""
    queue = known_queue(work, pause.queue)
    _check_what(pause.what)
    return [Stage(PAUSE, queue.name, (pause.what,))]


def resume(work: Work, resume: c.Resume) -> list[Stage]:
    """Resume pulling or dispatch (R90)."""
    queue = _used_queue(work, resume.queue)
    _check_what(resume.what)
    return [Stage(RESUME, queue.name, (resume.what,))]


def _check_what(what: str) -> None:
    if what not in ("pulling", "dispatch"):
        raise bad(what, "only pulling or dispatch can be paused")


def purge(work: Work, purge: c.Purge) -> list[Stage]:
    """Evict the ready messages, lowest position first (R90)."""
    queue = _used_queue(work, purge.queue)
    return [Stage(EXPIRE, queue.name), Stage(PURGE, queue.name)]


def _used_queue(work: Work, name: str) -> Queue:
    """The queue, to act on what it has. A queue that never existed has nothing (R90, R103)."""
    state = work.state
    if not address_of(name) and state.catalog.declares(name) and not state.exists(name):
        text = f"queue {name!r} was never used; only a pattern declares it"
        raise CommandRefused(Refusal.UNKNOWN_QUEUE, name, text)
    return known_queue(work, name)


def sweep(work: Work, sweep: c.Sweep) -> list[Stage]:
    """Do what is due (R12, R13, R32, R50, R81, R110)."""
    wake_ms = work.state.next_wake_ms()
    if wake_ms is None or wake_ms > work.now:
        return []
    heard_ms = work.now if sweep.heard_ms is None else min(sweep.heard_ms, work.now)
    return [Stage(SWEEP, "", (limits.SWEEP_AT_ONCE, sweep.heard_since_ms, heard_ms))]


# --- sends ---------------------------------------------------------------------------------------


def send(work: Work, stage: Stage) -> list[Stage]:
    """Check a send to a queue that was created with the same command (R71, R119)."""
    _, _, _, is_alone = stage.args
    refused = turned_away(known_queue(work, stage.queue), waiting_send(stage))
    if refused is not None and is_alone:
        raise CommandRefused(refused.reason, refused.about, refused.text)
    return [stage._replace(kind=ENTER)]


# --- single messages -----------------------------------------------------------------------------


def remove(work: Work, remove: c.Remove) -> list[Stage]:
    """Remove a ready or scheduled message (R90)."""
    return _find(work, REMOVE, remove.queue, remove.message)


def move(work: Work, move: c.Move) -> list[Stage]:
    """Move a ready or scheduled message to another queue (R90)."""
    known_queue(work, move.to)
    return _find(work, MOVE, move.queue, move.message, move.to)


def cancel_scheduled(work: Work, cancel: c.CancelScheduled) -> list[Stage]:
    """Remove a scheduled message (R34)."""
    return _find(work, CANCEL, cancel.queue, cancel.message)


def deliver_now(work: Work, deliver: c.DeliverNow) -> list[Stage]:
    """Make a scheduled message due now (R31, R34)."""
    return _find(work, DELIVER_NOW, deliver.queue, deliver.message)


def _find(work: Work, kind: str, queue_name: str, message_id: str, to: str = "") -> list[Stage]:
    """Look for the message: among the ready ones, unless it must be scheduled."""
    queue = _used_queue(work, queue_name)
    level = SCHEDULED if kind in (CANCEL, DELIVER_NOW) else 0
    stage = Stage(kind, queue.name, (message_id, level, None, to))
    return [stage] if work.is_full else search(work, stage)


def search(work: Work, stage: Stage) -> list[Stage]:
    """Look at as many messages as fit into this transaction (R114).

    Returns:
        What is to be done with the message; or the search, to go on with.
    """
    message_id, level, after, to = stage.args
    queue = known_queue(work, stage.queue)
    while True:
        for key, message in queue.table_of(level).walk(after):
            if not work.has_room:
                return [stage._replace(args=(message_id, level, after, to))]
            work.spend(cost_bytes(message))
            after = key
            if message.id == message_id:
                return [_found(work, stage.kind, queue, message, to)]
        if level == SCHEDULED:
            raise bad(message_id, _NOT_FOUND[stage.kind])
        level, after = level + 1 if level + 1 < limits.PRIORITIES else SCHEDULED, None


def _found(work: Work, kind: str, queue: Queue, message: Message, to: str) -> Stage:
    if kind == DELIVER_NOW:
        return Stage(MAKE_DUE, queue.name, (message,))
    if kind != MOVE:
        return Stage(TAKE_OUT, queue.name, (message,))
    target = known_queue(work, to)
    due_ms = message.due_ms if message.due_ms > work.now else 0
    send = send_of(message, target.name, work.now, due_ms)
    if reason := beyond_limits(work, target, send):
        raise CommandRefused(reason, message.id, f"queue {target.name!r} would refuse it")
    return Stage(MOVE_OUT, queue.name, (message, target, send))
