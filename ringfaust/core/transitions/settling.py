"""The stages of consumers' commands: attach, settle, return what they hold.

Each keeps to the order of commands: expire, do, dispatch. `checks` has accepted the command.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringfaust.core.model import AckMode, Consumer, Delivery, Stage, cost_bytes
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.attaching import join, save_sign_of_life, set_credit
from ringfaust.core.transitions.delivering import acked, dispatch, rejected
from ringfaust.core.transitions.leaving import expire, expire_in
from ringfaust.core.transitions.opening import covered, opened
from ringfaust.core.transitions.returning import requeue, requeue_held, requeue_some
from ringfaust.core.work import Work

ATTACH, ACK = "attach", "ack"
REQUEUE, RETURN, RETURN_SESSION = "requeue", "return", "return session"
"""Stages of commands (R114)."""
ALIVE, EXPIRE, GRANT, JOIN = "alive", "expire", "grant", "join"
ACCEPT, ACCEPT_ALL, ACCEPT_MANY = "accept", "accept all", "accept many"
RELEASE, REJECT, REQUEUE_WHOLE = "release", "reject", "requeue whole"
"""Stages that are performed at once."""


def alive_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Note that a consumer is alive (R13)."""
    (name,) = stage.args
    save_sign_of_life(work, queue, queue.consumers[name])


def expire_stage(work: Work, queue: Queue, _: Stage) -> None:
    """Expire what has to leave before the next stage (R50)."""
    work.state.use(queue)
    expire(work, queue)


def join_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Attach a consumer; to a new queue, once that has its copies (R10, R11, R71)."""
    name, credit, priority, ack_mode, session, selector, credit_bytes = stage.args
    most = work.state.most_active_consumers(queue)
    is_active = most < 0 or queue.places()[0] < most
    consumer = Consumer(
        name, queue.orders + 1, credit, priority, AckMode(ack_mode), session, is_active, work.now,
        selector, credit_bytes,
    )  # fmt: skip
    work.state.use(queue)
    join(work, queue, consumer)  # it is attached at that moment, before anything expires
    expire(work, queue)
    dispatch(work, queue)


def grant_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Set a consumer's credit (R10)."""
    consumer, credit = stage.args
    save_sign_of_life(work, queue, consumer)
    expire(work, queue)
    set_credit(queue, consumer, credit)
    dispatch(work, queue)


# --- accepted ------------------------------------------------------------------------------------


def accept_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Settle a delivery as accepted (R16)."""
    consumer: Consumer = stage.args[0]
    save_sign_of_life(work, queue, consumer)
    dispatches = _lets_others_go(queue, consumer)
    expire(work, queue)
    acked(work, queue, stage.args[1])
    if dispatches:
        dispatch(work, queue)


def _lets_others_go(queue: Queue, consumer: Consumer) -> bool:
    """Whether something can be dispatched after an ack of this consumer; look before it.

    A consumer that had room was offered all it wants; but with Artemis the head may expire.
    """
    return not consumer.is_open() or queue.policy.expires_when_met


def accept_many_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Settle as many deliveries of one consumer as fit into this transaction (R16, R114)."""
    work.state.use(queue)
    name, numbers, *begun = stage.args
    dispatches = begun[0] if begun else _lets_others_go(queue, queue.consumers[name])
    for done, number in enumerate(numbers):
        if not work.has_room:
            work.stages.append(stage._replace(args=(name, numbers[done:], dispatches)))
            return
        delivery: Delivery = queue.deliveries.get(number)  # type: ignore[assignment]
        work.spend(cost_bytes(delivery.message))
        acked(work, queue, delivery)
    if dispatches:
        dispatch(work, queue)


def accept_all_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """In mode `client`, settle all that was delivered in the session before (R16)."""
    consumer, last = stage.args
    save_sign_of_life(work, queue, consumer)
    settled = covered(work, queue, consumer, last)
    touched = dict.fromkeys([other_queue for _, other_queue in settled])
    for other_queue in touched:
        work.state.use(other_queue)
    expire_in(work, [queue, *[each for each in touched if each is not queue]])
    places = {name: place for place, name in enumerate(_queues_of(work, queue, consumer))}
    args = (consumer.name, last, [places[other_queue.name] for other_queue in touched])
    rest = Stage(ACK, queue.name, args)
    if not work.defers(rest):
        ack_stage(work, queue, rest)


def ack_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Settle as many of these as fit into this transaction, then dispatch likewise (R114).

    `args` name the queues to dispatch by their places in the session, since the row of a command
    has no room for thousands of names (R120). Older rows have names.
    """
    name, last, touched = stage.args
    consumer = queue.consumers[name]
    for number, other_queue in covered(work, queue, consumer, last):
        if not work.has_room:
            work.stages.append(stage)
            return
        delivery: Delivery = other_queue.deliveries.get(number)  # type: ignore[assignment]
        work.spend(cost_bytes(delivery.message))
        work.state.use(other_queue)
        acked(work, other_queue, delivery)
    names = _queues_of(work, queue, consumer)
    for done, place in enumerate(touched):
        if work.is_full:
            work.stages.append(stage._replace(args=(name, last, touched[done:])))
            return
        other_queue = opened(work, place if isinstance(place, str) else names[place])
        work.state.use(other_queue)  # all of its acks may have been in the transaction before
        dispatch(work, other_queue)


def _queues_of(work: Work, queue: Queue, consumer: Consumer) -> list[str]:
    """The names of the queues in a consumer's session, in order; without a session its own."""
    if not consumer.session:
        return [queue.name]
    members = work.state.session(consumer.session)
    return list(dict.fromkeys([queue_name for (queue_name, _), _ in members]))


# --- returned or rejected ------------------------------------------------------------------------


def release_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Return one delivery: a returning set of one (R23)."""
    consumer, delivery, delay_ms = stage.args
    save_sign_of_life(work, queue, consumer)
    expire(work, queue)
    requeue(work, queue, delivery, delayed=True, delay_ms=delay_ms)
    dispatch(work, queue)


def reject_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Settle a delivery as dead (R41)."""
    consumer, delivery, text = stage.args
    save_sign_of_life(work, queue, consumer)
    expire(work, queue)
    rejected(work, queue, delivery, text)
    dispatch(work, queue)


def requeue_stage(work: Work, stage: Stage) -> None:
    """Return what the consumers of a session hold of Artemis queues behind the one in `args`.

    Each queue has a set whose order matters, and some of which were acked (C2, C9). `args` have the
    acked deliveries, too, each with whether all before it were acked with it (R16).
    """
    session, after, acks = stage.args
    for queue_name, names in _queues_in(work, session, after):
        if work.is_full:
            work.stages.append(stage._replace(args=(session, after, acks)))
            return
        queue = opened(work, queue_name)
        if queue.policy.ends_set_first and not _requeue(work, queue, names, acks):
            work.stages.append(stage._replace(args=(session, after, acks)))
            return
        after = queue_name


def requeue_whole_stage(work: Work, stage: Stage) -> None:
    """As `requeue_stage`, in one transaction: version 0.2.0 could not do the rest (R129)."""
    session, after, acks = stage.args
    for queue_name, names in _queues_in(work, session, after):
        queue = opened(work, queue_name)
        if queue.policy.ends_set_first:
            room = work.left_transitions, work.left_bytes
            work.left_transitions = work.left_bytes = _ENDLESS
            _requeue(work, queue, names, acks)
            work.left_transitions -= _ENDLESS - room[0]
            work.left_bytes -= _ENDLESS - room[1]


_ENDLESS = 1 << 60
"""More than any set has messages or bytes."""


def _requeue(
    work: Work, queue: Queue, names: Iterable[str], acks: Iterable[tuple[int, bool]]
) -> bool:
    """Return what these consumers hold, and dispatch. False if some of it is left (R114)."""
    work.state.use(queue)
    expire(work, queue)
    consumers = sorted([queue.consumers[name] for name in names], key=lambda each: each.order)
    held = [number for each in consumers for number in sorted(each.positions)]
    acked = _acked_first(held, acks)
    numbers = [*acked, *[number for number in held if number not in acked]]
    if requeue_some(work, queue, numbers, delayed=True, acked=acked):
        return False
    dispatch(work, queue)
    return True


def _acked_first(held: Iterable[int], acks: Iterable[tuple[int, bool]]) -> dict[int, None]:
    """Which of these deliveries acks settle, in their order (C2)."""
    in_order = sorted(held)
    left = set(in_order)
    found: dict[int, None] = {}
    covered = 0
    for number, covers in acks:
        if not covers:
            if number in left:
                found[number] = None
            continue
        while covered < len(in_order) and in_order[covered] <= number:
            found[in_order[covered]] = None
            covered += 1
    return found


def return_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Return as much of what these consumers hold as fits into this transaction (R114)."""
    if not _return(work, queue, stage.args):
        work.stages.append(stage)


def return_session_stage(work: Work, stage: Stage) -> None:
    """The same for the consumers of a session, queue by queue behind the one that `args` name.

    `args` say, too, whether the next one has been begun. A queue that decides about its set as a
    whole has returned it already (C2).
    """
    session, after, is_begun = stage.args
    for queue_name, names in _queues_in(work, session, after):
        if work.is_full:
            work.stages.append(stage._replace(args=(session, after, False)))
            return
        queue = opened(work, queue_name)
        if not queue.policy.ends_set_first:
            work.state.use(queue)
            if not is_begun:
                expire(work, queue)
            if not _return(work, queue, names):
                work.stages.append(stage._replace(args=(session, after, True)))
                return
        after, is_begun = queue_name, False


def _queues_in(work: Work, session: str, after: str) -> list[tuple[str, list[str]]]:
    """The queues of a session behind a name, in order, each with the session's consumers."""
    by_queue: dict[str, list[str]] = {}
    for (queue_name, name), _ in work.state.session(session):
        if queue_name > after:
            by_queue.setdefault(queue_name, []).append(name)
    return list(by_queue.items())


def _return(work: Work, queue: Queue, names: Iterable[str]) -> bool:
    """Return what these consumers hold, and dispatch. False if some of it is left (R114)."""
    work.state.use(queue)
    consumers = [queue.consumers[name] for name in names]
    if not requeue_held(work, queue, consumers, delayed=True):
        return False
    dispatch(work, queue)
    return True
