"""Where a send goes: to a queue, or to each queue of an address (R70)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.address import Address, address_of
from ringfaust.core.admission import turned_away
from ringfaust.core.model import Refusal, Stage, cost_bytes
from ringfaust.core.new import send_of, unsent, waiting_send
from ringfaust.core.queue import Queue
from ringfaust.core.transitions.entering import enter
from ringfaust.core.transitions.opening import find, find_address, opened
from ringfaust.core.work import Work

PUBLISH, SEND = "publish", "send"
"""Stages of a command (R114)."""
ENTER = "enter"
"""A stage that is performed at once."""


def send(work: Work, send: c.Send, *, is_alone: bool = True) -> e.Refused | None:
    """Send to the queue of that name, or to each queue of the address (R43, R70).

    `is_alone`: the send is the whole command.

    Returns:
        Why nothing takes it: then nothing has changed. None if it was sent.
    """
    address = find_address(work, send.queue, cuts=True)
    if address is not None:
        if address.overfull:
            return e.Refused(send.queue, Refusal.LIMIT, send.queue, address.overfull)
        _publish(work, address, send, 0, is_routed=False)
        return None
    queue = find(work, send.queue)
    if queue is None:
        name = send.queue
        of = work.state.address(address_of(name))
        if of is not None and of.overfull:
            return e.Refused(name, Refusal.LIMIT, name, of.overfull)
        text = f"no queue {name!r} in this partition"
        return e.Refused(name, Refusal.UNKNOWN_QUEUE, name, text)
    if work.stages:  # what its address retains comes first
        left = (unsent(send), send.redrives, send.redrive_of, is_alone)
        work.stages.append(Stage(SEND, queue.name, left))
        return None
    refused = turned_away(queue, send)
    if refused is None:
        enter(work, queue, send)
    return refused


def enter_stage(work: Work, queue: Queue, stage: Stage) -> None:
    """Send what has waited until the queue was filled, unless the queue refuses it."""
    send = waiting_send(stage)
    refused = turned_away(queue, send)
    if refused is None:
        enter(work, queue, send)
    else:
        work.effects.append(refused._replace(about=send.id))


def publish_stage(work: Work, stage: Stage) -> None:
    """Continue a send to an address (R121)."""
    message, redrives, redrive_of, offered, is_routed = stage.args
    address = find_address(work, stage.queue)
    if address is None:  # a configuration that has come meanwhile declares it no more
        if not is_routed:
            work.effects.append(e.Unrouted(stage.queue, message))
        return
    send = send_of(message, address.name, message.enqueued_ms, message.due_ms)
    send = send._replace(redrives=redrives, redrive_of=redrive_of)
    _publish(work, address, send, offered, is_routed=is_routed)


def _publish(work: Work, address: Address, send: c.Send, offered: int, *, is_routed: bool) -> None:
    """Send a message to as many queues of an address as fit into this transaction (R70, R121).

    Args:
        work: of the step.
        address: where it is sent to.
        send: the message.
        offered: how many of the queues have been offered it.
        is_routed: whether any of them has selected it.
    """
    work.state.use_address(address)
    message = unsent(send)
    for name in address.members[offered:]:
        queue = None if work.is_full else opened(work, name)
        if queue is None or work.stages:  # what its first use has left to do comes first
            left = (message, send.redrives, send.redrive_of, offered, is_routed)
            work.stages.append(Stage(PUBLISH, address.name, left))
            return
        offered += 1
        work.spend(cost_bytes(message))
        if queue.selector is not None:
            work.weigh(limits.TEXT_COST_BYTES * len(queue.spec.selector))
            work.weigh(queue.selector.cost_of(message))
            if not queue.selector.matches(message):
                continue
        is_routed = True
        refused = turned_away(queue, send)
        if refused is None:
            enter(work, queue, send)
        else:  # by this queue; the others may take it
            work.effects.append(refused)
    if not is_routed:
        work.effects.append(e.Unrouted(address.name, message))
    address.retain(message)
