"""What a queue must hold and to whom, derived from its events. This uses no code of the engine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ringfaust.core.settings import QueueSpec
from tests.sim.plan import SELECTORS

WINDOW = "@window"
Line = dict[str, Any]


class Wrong(AssertionError):
    """The topics break the contract."""


def demand(holds: object, *what: object) -> None:
    if not holds:
        raise Wrong(" ".join(map(str, what)))


@dataclass(slots=True, eq=False)
class Message:
    """A message, as the events describe it."""

    sequence: int
    id: str
    source: str
    priority: int
    group: str
    due_ms: int
    expires_ms: int
    size_bytes: int
    properties: dict[str, Any]
    persistent: bool
    position: tuple[int, ...] = ()
    """Its place among the ready messages: messages that came due precede the others."""
    attempts: int = 0
    handovers: int = 0
    holders: list[str] = field(default_factory=list)

    def is_over(self, now_ms: int) -> bool:
        return 0 < self.expires_ms <= now_ms


@dataclass(slots=True, eq=False)
class Held:
    """A delivery that has not ended."""

    number: int
    consumer: str
    message: Message
    xid: str = ""
    is_orphan: bool = False
    handed_ms: int = 0


@dataclass(slots=True, eq=False)
class Client:
    """An attached consumer."""

    name: str
    order: int
    credit: int
    priority: int
    mode: str
    session: str
    selector: str
    credit_bytes: int
    active: bool
    seen_ms: int


class QueueBook:
    """One queue."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.spec: dict[str, Any] = {**asdict(QueueSpec()), **settings}
        self.own: dict[str, Any] = {}
        """Settings that were set live (R72)."""
        self.is_used = False
        """Whether it has ever had a message or a consumer."""
        self.ready: dict[int, Message] = {}
        self.scheduled: dict[int, Message] = {}
        self.held: dict[int, Held] = {}
        self.clients: dict[str, Client] = {}
        self.owners: dict[str, Client] = {}
        """By message group."""
        self.paused: set[str] = set()
        self.round_robin: dict[int, tuple[int, int]] = {}
        self.verdicts: dict[tuple[str, str], str] = {}
        """By consumer and message: the reason that a late settle is refused with."""
        self.ever: set[str] = set()
        """Consumers that ever attached."""
        self.sent: dict[str, tuple[int, int]] = {}
        """With a dedup window: when the last message of each id was sent, and its sequence."""
        self.orders = 0

    def repeats(self, message_id: str, sent_ms: int, redrive_of: str) -> bool:
        """Whether a message of that id was sent within the dedup window (R119)."""
        first_ms, sequence = self.sent.get(message_id, (-self.spec["dedup_window"], 0))
        is_redrive = redrive_of == f"{self.name}/{sequence}"
        return not is_redrive and sent_ms < first_ms + self.spec["dedup_window"]

    # --- reading ---------------------------------------------------------------------------------

    @property
    def messages(self) -> int:
        return len(self.ready) + len(self.scheduled) + len(self.held)

    @property
    def size_bytes(self) -> int:
        messages = [*self.ready.values(), *self.scheduled.values()]
        messages += [held.message for held in self.held.values()]
        return sum(message.size_bytes for message in messages)

    def in_order(self) -> list[Message]:
        return sorted(self.ready.values(), key=lambda m: (-m.priority, m.position))

    def held_by(self, consumer: str) -> list[Held]:
        return [
            h for _, h in sorted(self.held.items()) if h.consumer == consumer and not h.is_orphan
        ]

    def exceeds(self, messages: int, size_bytes: int) -> bool:
        return bool(
            0 <= self.spec["max_messages"] < messages or 0 <= self.spec["max_bytes"] < size_bytes
        )

    def is_full(self) -> bool:
        """Whether `block` stops pulling."""
        is_blocked = self.spec["when_full"] == "block"
        return is_blocked and self.exceeds(self.messages + 1, self.size_bytes + 1)

    def accepts_sends(self) -> bool:
        return "pulling" not in self.paused and not self.is_full()

    def most_active(self, multicast: bool) -> int:
        most: int = self.spec["max_active_consumers"]
        return 1 if most < 0 and multicast and not self.spec["shared"] else most

    def takes(self, client: Client, message: Message) -> bool:
        mine = self.held_by(client.name)
        held_bytes = sum(held.message.size_bytes for held in mine)
        return (
            client.active
            and len(mine) < client.credit
            and (not client.credit_bytes or held_bytes < client.credit_bytes)
            and SELECTORS[client.selector](message.properties)
        )

    def taker(self, message: Message) -> Client | None:
        """The consumer that must get the message (R11, R14, R15)."""
        if message.group in self.owners:
            owner = self.owners[message.group]
            return owner if self.takes(owner, message) else None
        willing = [client for client in self.clients.values() if self.takes(client, message)]
        if not willing:
            return None
        level = max(client.priority for client in willing)
        last, run = self.round_robin.get(level, (0, 0))
        candidates = sorted(
            (client for client in willing if client.priority == level),
            key=lambda client: (client.order <= last, client.order),
        )
        if run < self.spec["batch"]:
            candidates.sort(key=lambda client: client.order != last)
        return candidates[0]

    def find(self, line: Line) -> Message:
        """A ready or scheduled message."""
        sequence = line["sequence"]
        message = self.ready.get(sequence) or self.scheduled.get(sequence)
        demand(message, "it is neither ready nor scheduled:", line)
        assert message is not None
        return message

    def held_of(self, line: Line) -> Held:
        """The delivery of a line."""
        demand(line["delivery"] in self.held, "there is no such delivery:", line)
        held = self.held[line["delivery"]]
        said = (line["sequence"], line["consumer"])
        demand(
            said == (held.message.sequence, held.consumer),
            "the delivery belongs to another message or consumer:",
            line,
        )
        return held

    def victim(self) -> Message:
        """The victim of an overfull ring (R3)."""
        ready = self.in_order()
        if self.spec["evict"] == "head":
            return ready[0]
        if self.spec["evict"] == "lowest_priority":
            return min(ready, key=lambda m: (m.priority, m.position))
        return min(ready, key=lambda m: m.position)

    def judge(self, settle: dict[str, Any]) -> str:
        """Why a settle is refused; empty if it is not (R103)."""
        consumer, message, wanted = settle["consumer"], settle["message"], settle.get("delivery", 0)
        candidates = [
            held
            for held in self.held.values()  # also what it has settled in an open transaction
            if held.consumer == consumer
            and held.message.id == message
            and wanted in (0, held.number)
        ]
        if any(not held.xid for held in candidates):
            return ""
        if candidates:
            return "stale_delivery"
        if consumer not in self.ever:
            return "bad_command"
        return self.verdicts.get((consumer, message), "unknown_delivery")

    # --- changing --------------------------------------------------------------------------------

    def put(self, message: Message) -> None:
        """Make a message ready."""
        if not message.position:
            first = (0, message.due_ms) if message.due_ms else (1,)
            message.position = (*first, message.sequence)
        self.ready[message.sequence] = message

    def take(self, message: Message) -> None:
        """Remove a message from ready or scheduled."""
        self.ready.pop(message.sequence, None)
        self.scheduled.pop(message.sequence, None)

    def end(self, held: Held) -> None:
        del self.held[held.number]
        self.verdicts[held.consumer, held.message.id] = "stale_delivery"

    def evict(self, message: Message) -> None:
        for consumer in message.holders:
            self.verdicts[consumer, message.id] = "evicted"

    def hand_over(self, message: Message, client: Client, number: int, now_ms: int) -> None:
        self.take(message)
        if message.group:
            self.owners.setdefault(message.group, client)
        last, run = self.round_robin.get(client.priority, (0, 0))
        continues = client.order == last and run < self.spec["batch"]
        self.round_robin[client.priority] = (client.order, run + 1 if continues else 1)
        message.attempts += 1
        message.handovers += 1
        if client.name in message.holders:
            message.holders.remove(client.name)
        message.holders.append(client.name)
        self.held[number] = Held(number, client.name, message, handed_ms=now_ms)

    def part(self, client: Client) -> None:
        for held in self.held_by(client.name):
            demand(held.xid, self.name, "its consumer left but kept delivery", held.number)
            held.is_orphan = True
        del self.clients[client.name]
        self.owners = {group: owner for group, owner in self.owners.items() if owner is not client}

    # --- what must hold --------------------------------------------------------------------------

    def check_dispatched(self, now_ms: int) -> None:
        """No consumer could take any of the ready messages."""
        if "dispatch" in self.paused:
            return
        for message in self.ready.values():
            taker = None if message.is_over(now_ms) else self.taker(message)
            demand(
                taker is None,
                self.name,
                message.id,
                "waits, but this consumer could take it:",
                taker,
            )

    def check_swept(self, now_ms: int) -> None:
        """A tick has left nothing undone."""
        for message in (*self.ready.values(), *self.scheduled.values()):
            demand(not message.is_over(now_ms), self.name, "not expired:", message)
        for message in self.scheduled.values():
            demand(message.due_ms > now_ms, self.name, "still not due:", message)

    def check_silence(self, now_ms: int) -> None:
        """Nobody is attached, and no delivery of the window out, whose time was over by then."""
        timeout_ms, lease_ms = self.spec["consumer_timeout"], self.spec["window_lease"]
        for client in self.clients.values():
            is_alive = not timeout_ms or client.seen_ms + timeout_ms > now_ms
            demand(is_alive or client.name == WINDOW, self.name, "still attached:", client)
        for held in self.held.values():
            is_leased = held.consumer == WINDOW and lease_ms and not held.xid
            is_over = held.handed_ms + lease_ms <= now_ms
            demand(not (is_leased and is_over), self.name, "still held:", held)
