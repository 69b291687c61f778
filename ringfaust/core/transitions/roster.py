"""Adds, changes and removes the consumers of a queue."""

from __future__ import annotations

from ringfaust.core.model import Consumer
from ringfaust.core.queue import Queue, by_priority
from ringfaust.core.state import State
from ringfaust.core.transitions import history


def next_order(queue: Queue) -> int:
    """Take the next number in the attach order (R11)."""
    queue.orders += 1
    return queue.orders


def add_consumer(state: State, queue: Queue, consumer: Consumer) -> None:
    """Add a consumer, last in the attach order (R11)."""
    queue.consumers[consumer.name] = consumer
    queue.consumer_rows.put_new(consumer.order, consumer)
    _roster_changed(queue)
    history.arrive(queue.history, consumer.name)
    if consumer.session:
        state.session(consumer.session).put_new((queue.name, consumer.name), True)


def remove_consumer(state: State, queue: Queue, consumer: Consumer) -> None:
    """Remove a consumer that holds nothing. The groups it owned are free now (R14, R116)."""
    del queue.consumers[consumer.name]
    queue.consumer_rows.delete(consumer.order)
    _roster_changed(queue)
    history.depart(queue.history, consumer.name)
    if consumer.session:
        state.session(consumer.session).delete((queue.name, consumer.name))


def _roster_changed(queue: Queue) -> None:
    queue.consumers_by_priority = by_priority(queue.consumers.values())
    if queue.policy.restarts_round_robin:
        queue.cursors.clear()


def save_sign_of_life(queue: Queue, consumer: Consumer, now_ms: int) -> None:
    """Record that a consumer is alive (R13)."""
    if consumer.seen_ms != now_ms:
        consumer.seen_ms = now_ms
        queue.consumer_rows.put(consumer.order, consumer)


def set_credit(queue: Queue, consumer: Consumer, credit: int) -> None:
    """Change how many unsettled deliveries a consumer may hold (R10, R12)."""
    consumer.credit = credit
    queue.consumer_rows.put(consumer.order, consumer)


def activate(queue: Queue, consumer: Consumer) -> None:
    """Make a backup consumer active (R11)."""
    consumer.active = True
    queue.consumer_rows.put(consumer.order, consumer)
