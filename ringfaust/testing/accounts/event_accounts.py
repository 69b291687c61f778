"""The accounts of the events alone: the one check whether a history of events is legal.

What is legal is declared in `ringfaust/protocol/lifecycle.py`. The reconciler (for the demo and
chaos), the simulator and the tests of the engine take their events through this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ringfaust.core.model import HELD_STATES, Counts
from ringfaust.protocol.lifecycle import DELIVERING, ENDED, EVENTS, NEW, Line

Fault = Callable[[str, str], None]
"""Takes what is wrong, and the queue that it concerns."""


class HeldMessage:
    """A message that a queue holds according to its events."""

    __slots__ = ("delivery", "id", "source", "state")

    def __init__(self, message_id: str, source: str) -> None:
        self.id = message_id
        self.source = source
        self.state = NEW
        self.delivery = 0
        """The number of its last delivery; 0: it has had none."""


class QueueEvents:
    """What the events say of one queue since it was created."""

    __slots__ = ("counts", "held", "last_sequence")

    def __init__(self) -> None:
        self.counts = Counts()
        self.held: dict[int, HeldMessage] = {}
        """By sequence, in the order in which they entered."""
        self.last_sequence = 0


class EventAccounts:
    """Takes the events of partitions in order.

    It checks that each event may follow the one before it of its message and ends the delivery that
    it names, that steps do not go back and have one cause, that sequences and deliveries are
    numbered without a gap, and that a deleted queue is empty and had the counts it states.
    """

    def __init__(self, fault: Fault) -> None:
        self.queues: dict[str, QueueEvents] = {}
        self._fault = fault
        self._steps: dict[int, tuple[int, str]] = {}
        """By partition: the last step, and the record that caused it."""
        self._deliveries: dict[int, int] = {}
        """By partition: the number of the last delivery."""

    def queue(self, name: str) -> QueueEvents:
        """Return what is known of a queue."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = QueueEvents()
        return found

    def take(self, partition: int, line: Line) -> HeldMessage | None:
        """Take a line. Returns the message whose state it changes; None if there is none."""
        event = EVENTS.get(line["event"])
        if event is None:
            self._fault(f"there is no event {line['event']}", "")
            return None
        if event.has_step:
            self._check_step(partition, line)
        if event.moves:
            return self._move(partition, line)
        if event.name == "deleted":
            self._delete(line)
        return None

    def _check_step(self, partition: int, line: Line) -> None:
        now = (line["step"], line["by"])
        last = self._steps.get(partition, now)
        repeats = _may_repeat_a_step(line)
        if now[0] < last[0] or (now[0] == last[0] and now[1] != last[1] and not repeats):
            self._fault(f"partition {partition}: step {now} follows {last}", "")
        if not repeats:
            self._steps[partition] = now

    def _move(self, partition: int, line: Line) -> HeldMessage | None:
        event, name, sequence = EVENTS[line["event"]], line["queue"], line["sequence"]
        move, queue = event.move(line), self.queue(name)
        message = queue.held.get(sequence)
        if move.counted:
            change_count(queue.counts, move.counted)
        if move.before == (NEW,):
            if not sequence:
                return None  # the queue refused it
            if message is not None:
                self._fault(f"{describe(name, sequence)} was added twice", name)
            elif sequence != queue.last_sequence + 1:
                last = queue.last_sequence
                self._fault(f"{describe(name, sequence)} was added after message {last}", name)
            message = queue.held[sequence] = HeldMessage(line["id"], line["source"])
            queue.last_sequence = sequence
        elif message is None:
            self._fault(f"{describe(name, sequence)} was {event.name} while not in the queue", name)
            return None
        elif message.state not in move.before:
            self._fault(f"{describe(name, sequence)} was {event.name} while {message.state}", name)
        elif event.ends_named_delivery(move) and message.delivery != line["delivery"]:
            self._fault(f"{describe(name, sequence)} was {event.name} from another delivery", name)
        self._change(queue, sequence, message, move.after)
        if move.after == DELIVERING:
            self._deliver(partition, line, message)
        return message

    @staticmethod
    def _change(queue: QueueEvents, sequence: int, message: HeldMessage, state: str) -> None:
        counts = queue.counts
        if message.state != NEW:
            change_count(counts, message.state, -1)
        message.state = state
        if state == ENDED:
            del queue.held[sequence]
        else:
            change_count(counts, state)

    def _deliver(self, partition: int, line: Line, message: HeldMessage) -> None:
        message.delivery = line["delivery"]
        last = self._deliveries.get(partition, 0)
        if message.delivery != last + 1:
            text = f"partition {partition}: delivery {message.delivery} follows {last}"
            self._fault(text, line["queue"])
        self._deliveries[partition] = message.delivery

    def _delete(self, line: Line) -> None:
        name = line["queue"]
        queue = self.queue(name)
        for sequence in queue.held:
            text = f"{describe(name, sequence)} was held when its queue was deleted"
            self._fault(text, name)
        if line["counts"] != queue.counts.as_dict():
            text = f"queue {name} was deleted with the counts {line['counts']}, not "
            self._fault(f"{text}{queue.counts.as_dict()}", name)
        self.queues[name] = QueueEvents()  # a later queue of this name counts from one again


def _may_repeat_a_step(line: Line) -> bool:
    """Whether the line may show the step before.

    Examples are an idle tick, a refused send, and what a restart in the middle of a step finds lost
    (R82).
    """
    event = line["event"]
    is_look = event == "lost" and line["by"] == "start"
    return is_look or event == "done" or (event == "dead" and not line["sequence"])


def change_count(counts: Counts, name: str, by: int = 1) -> None:
    """Change the count of that name."""
    setattr(counts, name, getattr(counts, name) + by)


def describe(queue: str, sequence: int, delivery: int = 0, consumer: str = "") -> str:
    """Return the name of a message, or of one of its deliveries, for an error text."""
    name = f"message {sequence} of {queue}"
    return f"delivery {delivery} ({name}, to {consumer or 'no consumer'})" if delivery else name


def ids_by_state(messages: Iterable[HeldMessage]) -> Mapping[str, list[str]]:
    """Return the ids of messages by state."""
    found: dict[str, list[str]] = {state: [] for state in HELD_STATES}
    for message in messages:
        found[message.state].append(message.id)
    return found
