"""Opens and ends deliveries, and moves the round-robin cursor."""

from __future__ import annotations

from ringfaust.core.model import Consumer, Delivery
from ringfaust.core.queue import Queue


def open_delivery(queue: Queue, delivery: Delivery, consumer: Consumer) -> None:
    """Give a message that was taken out of the ring to a consumer; this uses one credit (R10)."""
    queue.deliveries.put_new(delivery.number, delivery)
    consumer.hold(delivery)
    queue.counts.delivering += 1


def end_delivery(queue: Queue, delivery: Delivery) -> None:
    """End a delivery, for whatever reason. Its credit is free again (R10)."""
    if delivery.is_orphan:
        queue.orphans -= 1
    else:
        consumer = queue.consumers[delivery.consumer]
        numbers = consumer.held[delivery.message.id]
        numbers.remove(delivery.number)
        if not numbers:
            del consumer.held[delivery.message.id]
        consumer.positions.pop(delivery.number, None)
        consumer.in_flight -= 1
        consumer.held_bytes -= delivery.message.size_bytes
    queue.deliveries.delete(delivery.number)
    queue.counts.delivering -= 1


def settle_in_xid(queue: Queue, delivery: Delivery, xid: str) -> None:
    """Mark a delivery as settled in an undecided distributed transaction (R81)."""
    queue.deliveries.put(delivery.number, delivery._replace(xid=xid))
    queue.consumers[delivery.consumer].positions.pop(delivery.number, None)


def orphan_deliveries(queue: Queue, consumer: Consumer) -> None:
    """Keep what a leaving consumer has settled in undecided transactions (R81)."""
    for delivery in queue.all_held_by(consumer):
        queue.deliveries.put(delivery.number, delivery._replace(is_orphan=True))
        queue.orphans += 1
    consumer.held.clear()
    consumer.in_flight = consumer.held_bytes = 0


def move_cursor(queue: Queue, consumer: Consumer) -> None:
    """Point the round-robin cursor of a consumer priority at the last receiver (R11)."""
    last, run = queue.cursors.get(consumer.priority, (0, 0))
    is_same_run = consumer.order == last and run < queue.spec.batch
    queue.cursors[consumer.priority] = (consumer.order, run + 1 if is_same_run else 1)


def skip_consumer(queue: Queue) -> None:
    """Move the cursor past the consumer that met an expired message (C1, C12)."""
    priority, consumers = queue.consumers_by_priority[0]
    last, _ = queue.cursors.get(priority, (0, 0))
    following = next((each for each in consumers if each.order > last), consumers[0])
    queue.cursors[priority] = (following.order, queue.spec.batch)
