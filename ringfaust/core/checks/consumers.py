"""Checks the commands by which consumers come, stay and go, and return what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringfaust.core import commands as c
from ringfaust.core import levels, limits
from ringfaust.core.address import subscription_queue
from ringfaust.core.checks.queues import create_queue, known_address
from ringfaust.core.checks.refusal import (
    CommandRefused,
    bad,
    beyond,
    check_given_selector,
    check_turn,
    known_queue,
)
from ringfaust.core.model import WINDOW, AckMode, Consumer, Refusal, Stage
from ringfaust.core.queue import Queue
from ringfaust.core.selector import compile_selector
from ringfaust.core.transitions.attaching import LEAVE
from ringfaust.core.transitions.settling import (
    ALIVE,
    ATTACH,
    EXPIRE,
    GRANT,
    JOIN,
    REQUEUE,
    REQUEUE_WHOLE,
    RETURN,
    RETURN_SESSION,
)
from ringfaust.core.work import Work

# --- joining -------------------------------------------------------------------------------------


def attach(work: Work, attach: c.Attach) -> list[Stage]:
    """Attach a consumer to a queue (R10, R11)."""
    queue = known_queue(work, attach.queue)
    _check_values(work, attach)
    return _in_turn(work, _attach_stage(attach, queue.name, attach.selector))


def subscribe(work: Work, subscribe: c.Subscribe) -> list[Stage]:
    """Attach a consumer to the queue of its subscription, which is created if needed (R70)."""
    _check_values(work, subscribe)
    address = known_address(work, subscribe.address)
    if address.spec.routing == "anycast":
        raise bad(address.name, "this is an anycast address; attach to its queue")
    name = subscription_queue(subscribe)
    attach_stage = _attach_stage(subscribe, name, "")
    if name not in address.members:
        settings = {
            "selector": subscribe.selector,
            "shared": subscribe.shared,
            "durable": bool(subscribe.subscription),
        }
        return [*create_queue(work, c.CreateQueue(name, settings)), attach_stage]
    queue = known_queue(work, name)
    if not subscribe.subscription:
        raise bad(subscribe.consumer, f"queue {name!r} exists; use another consumer name")
    if not queue.spec.durable:
        raise bad(name, "this queue is deleted with its last consumer; use another name")
    if queue.spec.selector != subscribe.selector:
        raise bad(
            name,
            f"this subscription has the selector {queue.spec.selector!r}; delete "
            "its queue first to subscribe with another",
        )
    return _in_turn(work, attach_stage)


def join(work: Work, stage: Stage) -> list[Stage]:
    """Check the places in a queue to which a consumer is to be attached (R11).

    What comes before the attach may fill other transactions, and makes or takes places (R114).
    """
    name, _, priority, _, session, selector = stage.args[:6]
    queue = known_queue(work, stage.queue)
    _check_places(work, queue, name)
    _check_priorities(queue, name, priority)
    _check_session(work, name, session)
    _check_selectors(queue, name, selector)
    return [stage._replace(kind=JOIN)]


def _in_turn(work: Work, stage: Stage) -> list[Stage]:
    """Check the places now, or when the transactions before have been committed."""
    return [stage] if work.is_full else join(work, stage)


def _attach_stage(attach: c.Attach | c.Subscribe, queue: str, selector: str) -> Stage:
    args = (
        attach.consumer, attach.credit, attach.priority, attach.ack_mode, attach.session, selector,
        attach.credit_bytes,
    )  # fmt: skip
    return Stage(ATTACH, queue, args)


def _check_values(work: Work, attach: c.Attach | c.Subscribe) -> None:
    """Check the values of an attach or a subscribe (R15, R103)."""
    if attach.consumer == WINDOW:
        raise bad(WINDOW, "this name is reserved for managed windows")
    if not 0 <= attach.credit <= limits.CREDIT:
        raise bad(attach.consumer, f"credit must be from 0 to {limits.CREDIT}")
    if not 0 <= attach.credit_bytes <= limits.CREDIT_BYTES:
        raise bad(attach.consumer, f"credit_bytes must be from 0 to {limits.CREDIT_BYTES}")
    check_given_selector(work, attach.consumer, attach.selector)


def _check_places(work: Work, queue: Queue, name: str) -> None:
    """Check that the queue may have another consumer of that name (R11)."""
    if name in queue.consumers:
        raise bad(name, "a consumer of that name is attached; detach it first")
    if len(queue.consumers) >= limits.CONSUMERS:
        raise CommandRefused(Refusal.CONSUMER_LIMIT, name, "the queue has no place left")
    most = work.state.most_active_consumers(queue)
    active, backups = queue.places()
    if 0 <= most <= active and backups >= queue.spec.max_backup_consumers:
        text = f"{active} active and {backups} backup consumers are attached: no place left"
        raise CommandRefused(Refusal.CONSUMER_LIMIT, name, text)


def _check_priorities(queue: Queue, name: str, priority: int) -> None:
    """Check that the queue's row has room for another cursor (R120)."""
    priorities = [each for each, _ in queue.consumers_by_priority]
    if priority not in priorities and len(priorities) >= limits.CONSUMER_PRIORITIES:
        text = f"consumers of {len(priorities)} priorities are attached: use one of these"
        raise beyond(name, text)


def _check_session(work: Work, name: str, session: str) -> None:
    """Check that the session may have another consumer (R120)."""
    if session and sum(1 for _ in work.state.session(session)) >= limits.SESSION_CONSUMERS:
        text = f"session {session!r} has {limits.SESSION_CONSUMERS:,} consumers here, the limit"
        raise beyond(name, text)


def _check_selectors(queue: Queue, name: str, selector: str) -> None:
    """Check what the selectors of the queue do if all look at one message (R122)."""
    if not selector:
        return
    own = compile_selector(selector)
    others = [each.compiled for each in queue.consumers.values() if each.compiled]
    searches = sum([each.searches for each in others])
    operations = sum([each.operations for each in others])
    text = _too_much(
        own.searches, searches, limits.LIKES,
        "patterns of LIKE (one with _ between two % counts as several)",
    ) or _too_much(
        own.operations, operations, limits.OPERATIONS, "names, values, calculations and conditions"
    )  # fmt: skip
    if text:
        raise beyond(name, f"the selector {selector[:80]!r} counts {text}")


def _too_much(own: int, others: int, most: int, what: str) -> str:
    """Say how one of these sums exceeds its limit; empty: it does not."""
    if not own or own + others <= most:
        return ""
    return (
        f"{own:,} {what}, and the selectors of the other consumers {others:,}; a queue takes at "
        f"most {most:,}"
    )


# --- while it is attached, and its end -----------------------------------------------------------


def credit(work: Work, credit: c.Credit) -> list[Stage]:
    """Grant a consumer more credit (R10)."""
    queue, consumer = _find_attached(work, credit)
    if credit.add < 0 or consumer.credit + credit.add > limits.CREDIT:
        raise bad(consumer.name, f"credit must stay between 0 and {limits.CREDIT}")
    return [Stage(GRANT, queue.name, (consumer, consumer.credit + credit.add))]


def heartbeat(work: Work, heartbeat: c.Heartbeat) -> list[Stage]:
    """Note that a consumer is alive (R13). Nothing else happens."""
    queue, consumer = _find(work, heartbeat)
    return [Stage(ALIVE, queue.name, (consumer.name,))]


def detach(work: Work, detach: c.Detach) -> list[Stage]:
    """Detach a consumer cleanly (R20)."""
    queue, consumer = _find_attached(work, detach)
    return [Stage(EXPIRE, queue.name), Stage(LEAVE, queue.name, (consumer.name, False))]


def recover(work: Work, recover: c.Recover) -> list[Stage]:
    """Return all that a consumer holds; it stays attached (R20)."""
    queue, consumer = _find(work, recover)
    return [
        Stage(ALIVE, queue.name, (consumer.name,)),
        Stage(EXPIRE, queue.name),
        Stage(RETURN, queue.name, (consumer.name,)),
    ]


def _find(
    work: Work, command: c.Credit | c.Heartbeat | c.Detach | c.Recover
) -> tuple[Queue, Consumer]:
    queue = known_queue(work, command.queue)
    check_turn(work)
    consumer = queue.consumers.get(command.consumer)
    if consumer is None:
        raise bad(command.consumer, "no consumer of that name is attached; attach it first")
    return queue, consumer


def _find_attached(work: Work, command: c.Credit | c.Detach) -> tuple[Queue, Consumer]:
    """As `_find`, but not the consumer of a managed window."""
    if command.consumer == WINDOW:
        raise bad(WINDOW, "a managed window is changed by the queue's setting `window`")
    return _find(work, command)


# --- the rollback of a session -------------------------------------------------------------------


def rollback(work: Work, rollback: c.Rollback) -> list[Stage]:
    """Return, per queue as one set, all that the consumers of a session hold (R80)."""
    members = list(work.state.session(rollback.session))
    if not members:
        raise bad(rollback.session, "no consumer is attached in a session of that name")
    consumers: dict[tuple[str, str], Consumer] = {}
    stages: list[Stage] = []
    by_queue: dict[str, list[Consumer]] = {}
    for (name, consumer_name), _ in members:
        queue = known_queue(work, name)
        by_queue.setdefault(name, []).append(queue.consumers[consumer_name])
        if queue.policy.ends_set_first:
            consumers[name, consumer_name] = queue.consumers[consumer_name]
    for name, own in by_queue.items():
        in_order = sorted(own, key=lambda each: each.order)
        stages += [Stage(ALIVE, name, (each.name,)) for each in in_order]
    if consumers:  # C2, C9: also the order of the acks matters
        acks = _acked(consumers, rollback.acked)
        kind = REQUEUE if work.state.level >= levels.CUTS_MORE else REQUEUE_WHOLE
        stages.append(Stage(kind, "", (rollback.session, "", acks)))
    return [*stages, Stage(RETURN_SESSION, "", (rollback.session, "", False))]


def _acked(
    consumers: Mapping[tuple[str, str], Consumer], acks: Iterable[c.Ack]
) -> list[tuple[int, bool]]:
    """The held deliveries that the acks name, in their order (R16, C2).

    Each with whether it covers all that were delivered before in the session. `consumers`: of the
    session, by queue and name. No body is read for this.
    """
    found: list[tuple[int, bool]] = []
    taken, covered = set(), 0
    for ack in acks:
        consumer = consumers.get((ack.queue, ack.consumer))
        if consumer is None:
            continue
        for number in sorted(consumer.held.get(ack.message, ())):
            is_free = number > covered and number not in taken and number in consumer.positions
            if is_free and ack.delivery in (0, number):
                covers = consumer.ack_mode is AckMode.CLIENT
                covered = number if covers else covered
                taken.add(number)
                found.append((number, covers))
                break
    return found
