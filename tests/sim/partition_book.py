"""Checks the events of one partition, line by line, against the rules of the contract.

`EventAccounts` has checked before that each event may follow the one before it, the numbers and
the counts.

The lines of one step are a group, and a group has a cause: the record that `by` names, or time.
This module checks what each line does to a message; `causes` checks what a cause does as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.plan import ADDRESS, DECLARED, ROUTES, Plan
from tests.sim.queue_book import WINDOW, Client, Held, Line, Message, QueueBook, demand
from tests.sim.sends import Send
from tests.sim.victims import check_due_order, judge_victim

ROUNDS = 1e9


class PartitionBook:
    """The queues of one partition, as its events describe them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.applied: tuple[int, dict[str, Any], str] = 0, {}, ""
        """The configuration in use, after its revision, and who has applied it (R128)."""
        self.level = 1
        """The feature level in use (R129)."""
        self._declared = self._declarations(plan.document())
        self.topics = {route["topic"] for route in ROUTES}
        """Whose records become messages."""
        self.queues: dict[str, QueueBook] = {}
        self.members: list[str] = []
        """Queues of the address, in the order they joined."""
        self.kept: list[Send] = []
        self.most_kept = self._kept_by(plan.document())
        self._is_kept_by_command = False
        """Whether an operator has set that."""
        self.xids: dict[str, dict[str, Any]] = {}
        """By name: whether it is prepared, and what was done in it."""
        self.deliveries = 0
        self.now_ms = 0
        self.message_of: Callable[[Line], Message]
        """The message of a line `added`, which depends on the cause."""
        self.command: dict[str, Any] = {}
        """The group's command; empty where a send or time is the cause."""
        self.clean: set[tuple[str, str]] = set()
        """Consumers that detach in this group without a timeout."""
        self.ended: list[tuple[str, Held]] = []
        """Deliveries that ended in this group, in order."""
        self.acked: list[int] = []
        self.adds: list[tuple[str, str]] = []
        """Queue and id of the messages added in this group."""
        self.overflows: list[str] = []
        self.moved: Message | None = None
        self.displaced = ("", "")
        """Queue and id of the message that displaced another one."""
        self.outputs: dict[str, list[tuple[Any, ...]]] = {
            "dispatched": [],
            "evicted": [],
            "dead": [],
        }
        """The expected records of the other topics, in order."""

    def queue(self, name: str) -> QueueBook | None:
        """The queue of that name, if there is one."""
        if name not in self.queues and name in self._declared:
            self.queues[name] = QueueBook(name, self._declared[name])
        return self.queues.get(name)

    @staticmethod
    def _declarations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What a configuration says of queues, by name."""
        declared = dict(document["queues"])
        if document["addresses"]:
            declared[DECLARED] = document["addresses"][ADDRESS]["subscriptions"]["all"]
        return declared

    def settings_of(self, queue: QueueBook) -> dict[str, Any]:
        """All settings that a queue must have: its own win over those of the configuration."""
        return QueueBook(queue.name, self._declared.get(queue.name, {}) | queue.own).spec

    def takes_part(self, xid: str, owner: str) -> bool:
        """Whether more can be done in the transaction by whoever shows this owner (R81)."""
        known = self.xids.get(xid)
        return known is not None and not known["prepared"] and known["owner"] == owner

    def begin(self, command: dict[str, Any], lines: list[Line]) -> None:
        """A group begins."""
        self.command = command
        self.clean = {
            (line["queue"], line["consumer"])
            for line in lines
            if line["event"] == "detached" and not line["timeout"]
        }
        self.ended, self.acked, self.adds, self.overflows, self.moved = [], [], [], [], None
        self.displaced = ("", "")

    def read(self, line: Line) -> None:
        """One line."""
        queue = self.queue(line.get("queue", ""))
        handler = getattr(self, f"_{line['event']}")
        if line["event"] in _WITHOUT_QUEUE:
            handler(line)
        else:
            demand(queue is not None, "there is no such queue:", line)
            handler(queue, line)

    # --- coming in -------------------------------------------------------------------------------

    def _added(self, queue: QueueBook, line: Line) -> None:
        message = self._enter(queue, line)
        is_gone = message.is_over(line["time_ms"])
        demand(is_gone or not message.due_ms, "it is due later, but was not scheduled:", line)
        queue.put(message)

    def _scheduled(self, queue: QueueBook, line: Line) -> None:
        message = self._enter(queue, line)
        demand(message.due_ms > line["time_ms"], "scheduled, but not due later:", line)
        queue.scheduled[message.sequence] = message

    def _enter(self, queue: QueueBook, line: Line) -> Message:
        self._no_overflow_due(queue)
        message = self.message_of(line)
        for name, said in (
            ("id", message.id), ("source", message.source), ("priority", message.priority),
            ("size_bytes", message.size_bytes), ("group", message.group),
            ("due_ms", message.due_ms), ("expires_at_ms", message.expires_ms),
        ):  # fmt: skip
            demand(line.get(name, type(said)()) == said, f"{name} must be {said!r}:", line)
        if queue.spec["dedup_window"] and message.id != message.source:
            queue.sent[message.id] = line["enqueued_ms"], message.sequence
        self.adds.append((queue.name, message.id))
        queue.is_used = True
        return message

    def _no_overflow_due(self, queue: QueueBook) -> None:
        """The ring evicts at most one message for each message added."""
        added = [name for name, _ in self.adds].count(queue.name)
        went = self.overflows.count(queue.name)
        demand(went <= added, queue.name, "evicts more than one for a send")

    def _due(self, queue: QueueBook, line: Line) -> None:
        message = queue.scheduled[line["sequence"]]
        check_due_order(self.command, queue, message, line)
        if self.command.get("type") == "deliver_now":
            message.due_ms = line["time_ms"]
        demand(message.due_ms == line["due_ms"] <= line["time_ms"], "it is not due:", line)
        if self.displaced != (queue.name, message.id):
            self._demand_room(queue, line)
        queue.take(message)
        queue.put(message)

    def _demand_room(self, queue: QueueBook, line: Line) -> None:
        ring_size = queue.spec["ring_size"]
        demand(ring_size < 0 or len(queue.ready) < ring_size, "the ring is full:", line)

    # --- deliveries ------------------------------------------------------------------------------

    def _dispatched(self, queue: QueueBook, line: Line) -> None:
        message = queue.ready[line["sequence"]]
        demand("dispatch" not in queue.paused, "dispatch is paused:", line)
        demand(not message.is_over(line["time_ms"]), "it has expired:", line)
        for other in queue.in_order():
            if other is message:
                break
            waits = other.is_over(line["time_ms"]) or queue.taker(other) is None
            demand(waits, other.id, "must be delivered first:", line)
        taker = queue.taker(message)
        demand(taker is not None, "no consumer can take it:", line)
        assert taker is not None
        demand(taker.name == line["consumer"], taker.name, "is the next consumer:", line)
        self.deliveries = line["delivery"]
        queue.hand_over(message, taker, self.deliveries, line["time_ms"])
        self._demand_attempts(message, line)
        is_again = message.handovers > 1
        self.outputs["dispatched"].append(
            (queue.name, message, taker.name, self.deliveries, message.attempts, is_again)
        )

    def _demand_attempts(self, message: Message, line: Line) -> None:
        said = (line["attempt"], line["handovers"])
        known = (message.attempts, message.handovers)
        demand(said == known, "attempt and handovers must be", known, line)

    def _acked(self, queue: QueueBook, line: Line) -> None:
        held = queue.held_of(line)
        self._demand_attempts(held.message, line)
        queue.end(held)
        client = queue.clients.get(held.consumer)
        if client is None or client.mode != "none":
            self.acked.append(held.number)

    def _end(self, queue: QueueBook, held: Held) -> None:
        """A delivery ends."""
        queue.end(held)
        self.ended.append((queue.name, held))
        if (queue.name, held.consumer) in self.clean:
            held.message.attempts -= 1

    def _returned(self, queue: QueueBook, line: Line) -> None:
        held, now_ms = queue.held_of(line), line["time_ms"]
        message = held.message
        if self.command.get("type") == "tick" and held.consumer == WINDOW and not held.xid:
            lease_ms = queue.spec["window_lease"]
            demand(0 < lease_ms <= now_ms - held.handed_ms, "its lease goes on:", held, line)
        self._end(queue, held)
        self._demand_attempts(message, line)
        most = queue.spec["max_attempts"]
        demand(most < 0 or message.attempts < most, "it has had all its attempts:", line)
        demand(not message.is_over(now_ms), "it has expired:", line)
        wait_ms = self._wait_ms(queue, held)
        demand(line.get("due_ms", 0) == (now_ms + wait_ms if wait_ms else 0), wait_ms, "ms:", line)
        if wait_ms:
            message.due_ms = now_ms + wait_ms
            queue.scheduled[message.sequence] = message
        else:
            self._demand_room(queue, line)
            queue.put(message)

    def _wait_ms(self, queue: QueueBook, held: Held) -> int:
        """The redelivery delay (R40)."""
        kind = self.command.get("type")
        is_undone = kind == "tick" and held.xid
        if (queue.name, held.consumer) in self.clean or not (kind in _DELAYED or is_undone):
            return 0
        if self.command.get("delay_ms") is not None:
            return int(self.command["delay_ms"])
        spec = queue.spec
        delay = spec["redelivery_delay"] * spec["redelivery_multiplier"] ** (
            held.message.attempts - 1
        )
        cap = spec["redelivery_delay_max"]
        return int(min(delay, cap if cap >= 0 else ROUNDS))

    # --- leaving ---------------------------------------------------------------------------------

    def _evicted(self, queue: QueueBook, line: Line) -> None:
        reason, ring_size = line["reason"], queue.spec["ring_size"]
        sequence = line["sequence"]
        held = next((h for h in queue.held.values() if h.message.sequence == sequence), None)
        if held is not None:
            demand(0 <= ring_size <= len(queue.ready), "the ring has room:", line)
            message = held.message
            self._end(queue, held)
        else:
            message = queue.find(line)
            judge_victim(self, queue, message, line)
            queue.take(message)
        demand(not message.is_over(line["time_ms"]), "it has expired:", line)
        demand(line["ready"] == len(queue.ready), len(queue.ready), "are ready:", line)
        demand(line["ring_size"] == ring_size, "the ring has", ring_size, line)
        demand(line["handovers"] == message.handovers, message.handovers, "hand-overs:", line)
        queue.evict(message)
        form = queue.spec["evicted_payload"]
        self.outputs["evicted"].append((queue.name, message, reason, line["cause"], form))

    def _expired(self, queue: QueueBook, line: Line) -> None:
        if line["delivery"]:
            held = queue.held_of(line)
            message = held.message
            self._end(queue, held)
        else:
            message = queue.find(line)
            queue.take(message)
        demand(message.is_over(line["time_ms"]), "it has not expired:", line)
        demand(line["expires_at_ms"] == message.expires_ms, "expires:", message.expires_ms, line)
        self.outputs["dead"].append((queue.name, message, "expired"))

    def _dead(self, queue: QueueBook, line: Line) -> None:
        reason = line["reason"]
        if not line["sequence"]:
            self.outputs["dead"].append((queue.name, line["id"], reason))
            return
        found = [h for h in queue.held.values() if h.message.sequence == line["sequence"]]
        demand(
            found and found[0].consumer == line["consumer"], "that consumer does not hold it:", line
        )
        held = found[0]
        self._end(queue, held)
        if reason == "undeliverable":
            most = queue.spec["max_attempts"]
            demand(0 <= most <= held.message.attempts, "it may be tried again:", line)
        else:
            is_asked = self.command.get("type") == "reject" and line["text"] == ""
            demand(reason == "rejected" and is_asked, "no consumer has rejected it:", line)
        self.outputs["dead"].append((queue.name, held.message, reason))

    def _lost(self, queue: QueueBook, line: Line) -> None:
        sequence = line["sequence"]
        held = next((h for h in queue.held.values() if h.message.sequence == sequence), None)
        if held is None:
            message = queue.find(line)
            queue.take(message)
        else:
            message = held.message
            self._end(queue, held)
        demand(not message.persistent, "a persistent message is lost:", line)

    def _removed(self, queue: QueueBook, line: Line) -> None:
        queue.take(queue.find(line))

    def _moved_out(self, queue: QueueBook, line: Line) -> None:
        self.moved = queue.find(line)
        queue.take(self.moved)

    # --- consumers and queues --------------------------------------------------------------------

    def _attached(self, queue: QueueBook, line: Line) -> None:
        name = line["consumer"]
        client = queue.clients.get(name)
        if client is not None:
            demand(line["active"] and not client.active, "it was attached:", line)
            client.active = True
        else:
            queue.orders += 1
            queue.is_used = True
            given = self.command if name != WINDOW else {"credit": queue.spec["window"]}
            is_subscription = given.get("type") == "subscribe"
            client = queue.clients[name] = Client(
                name, queue.orders, given["credit"], given.get("priority", 0),
                given.get("ack_mode", "individual"), given.get("session", ""),
                "" if is_subscription else given.get("selector", ""),
                given.get("credit_bytes", 0), line["active"], line["time_ms"],
            )  # fmt: skip
            queue.ever.add(name)
        most = queue.most_active(queue.name in self.members)
        active = sum(each.active for each in queue.clients.values() if each.name != WINDOW)
        is_allowed = most < 0 or active <= most or not line["active"] or name == WINDOW
        demand(is_allowed, most, "may be active:", line)

    def _detached(self, queue: QueueBook, line: Line) -> None:
        client = queue.clients.get(line["consumer"])
        demand(client is not None, "it is not attached:", line)
        assert client is not None
        if line["timeout"]:
            silent_ms = line["time_ms"] - client.seen_ms
            demand(0 < queue.spec["consumer_timeout"] <= silent_ms, silent_ms, "ms silent:", line)
        queue.part(client)

    def _configured(self, line: Line) -> None:
        name = line["queue"]
        queue = self.queue(name)
        if line["created"]:
            demand(queue is None, "it already exists:", line)
            queue = self.queues[name] = QueueBook(name, {})
        demand(queue is not None, "there is no such queue:", line)
        assert queue is not None
        if self.command.get("type") != "apply":
            queue.own |= line["settings"]
        queue.spec.update(line["settings"])
        if not queue.spec["dedup_window"]:
            queue.sent = {}
        if WINDOW in queue.clients and queue.spec["window"]:
            queue.clients[WINDOW].credit = queue.spec["window"]

    def _configured_address(self, line: Line) -> None:
        self.most_kept = line["settings"].get("retroactive_count", self.most_kept)
        self._is_kept_by_command |= "retroactive_count" in line["settings"]
        self.keep()

    def _applied(self, line: Line) -> None:
        """Another configuration is in use. What it changes of used queues, other lines tell."""
        document = self.command["configuration"]
        self.applied = line["revision"], document, self.command["who"]
        self._declared = self._declarations(document)
        self.topics = {route["topic"] for route in document["routes"]}
        for queue in self.queues.values():
            if not queue.is_used:
                queue.spec = self.settings_of(queue)
        if not self._is_kept_by_command:
            self.most_kept = self._kept_by(document)
        self.keep()

    @staticmethod
    def _kept_by(document: dict[str, Any]) -> int:
        """How many messages a configuration lets the address retain."""
        count: int = document["addresses"].get(ADDRESS, {}).get("retroactive_count", 0)
        return count

    def keep(self, sent: Send | None = None) -> None:
        """Update the messages that the address retains for later queues (R71)."""
        if sent is not None:
            self.kept.append(sent)
        self.kept = self.kept[-self.most_kept :] if self.most_kept else []

    def _paused(self, queue: QueueBook, line: Line) -> None:
        (queue.paused.add if line["paused"] else queue.paused.discard)(line["what"])

    def _deleted(self, queue: QueueBook, line: Line) -> None:
        demand(not queue.clients, "somebody is left in it:", line)
        del self.queues[queue.name]
        if queue.name in self.members:
            self.members.remove(queue.name)


_DELAYED = frozenset(("release", "recover", "rollback", "rollback_xid", "start"))
_WITHOUT_QUEUE = frozenset(("applied", "configured", "configured_address"))
