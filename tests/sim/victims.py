"""Which message may be evicted, and why (R2, R3, R5, R31, R60)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.queue_book import Line, Message, QueueBook, demand

if TYPE_CHECKING:
    from tests.sim.partition_book import PartitionBook


def check_due_order(
    command: dict[str, Any], queue: QueueBook, message: Message, line: Line
) -> None:
    """Scheduled messages become due in order of time, then sequence."""
    if command.get("type") != "deliver_now":
        first = min(queue.scheduled.values(), key=lambda m: (m.due_ms, m.sequence))
        demand(first is message, first.id, "is due first:", line)


def judge_victim(book: PartitionBook, queue: QueueBook, message: Message, line: Line) -> None:
    """An eviction is allowed, and its victim is the right one."""
    reason, ring_size, ready = line["reason"], queue.spec["ring_size"], len(queue.ready)
    lowest = min(queue.ready.values(), key=lambda m: m.position, default=None)
    expired = [m.id for m in queue.ready.values() if m.is_over(line["time_ms"])]
    demand(not expired, expired, "must expire first:", line)
    came = [message_id for name, message_id in book.adds if name == queue.name]
    if reason == "overflow":
        demand(0 <= ring_size < ready, "the ring is not overfull:", line)
        is_ready = any(each.id == line["cause"] for each in queue.ready.values())
        demand(is_ready, "the message that was sent is not ready:", line)
        demand(message is queue.victim(), queue.victim().id, "is the victim:", line)
        demand(line["cause"] in came, "its cause was not added:", line)
        book.overflows.append(queue.name)
    elif reason == "scheduled_overflow":
        demand(0 <= ring_size <= ready, "the ring has room:", line)
        if queue.spec["scheduled_when_full"] == "displace":
            demand(message is lowest, "it is not the oldest:", line)
            book.displaced = (queue.name, line["cause"])
        else:
            demand(message.sequence in queue.scheduled, "it was not scheduled:", line)
            check_due_order(book.command, queue, message, line)
    elif reason == "limit":
        when_full = queue.spec["when_full"]
        demand(queue.exceeds(queue.messages, queue.size_bytes), "within its limits:", line)
        demand(line["cause"] in came, "its cause was not added:", line)
        if when_full == "drop_newest":
            demand(message.id == line["cause"], "it is not the newest:", line)
        elif when_full == "drop_lowest_priority":
            least = min(queue.ready.values(), key=lambda m: (m.priority, m.position))
            demand(message is least, least.id, "has the lowest priority:", line)
        else:
            demand(message is lowest, "it is not the oldest:", line)
    else:
        demand(message is lowest, "it is not the oldest:", line)
        is_asked = reason == "purge" or 0 <= ring_size < ready and queue.spec["shrink"] == "eager"
        demand(is_asked, "there is no reason to evict:", line)
