"""Checks the effect of a cause, a record or a moment, as a whole."""

from __future__ import annotations

from typing import Any

from tests.sim.partition_book import PartitionBook
from tests.sim.plan import ADDRESS, DECLARED, SELECTORS
from tests.sim.queue_book import WINDOW, Client, Held, Line, Message, QueueBook, demand
from tests.sim.sends import Send

_ENTRIES = ("added", "scheduled", "unrouted", "pending")


class Causes:
    """Checks groups of lines of one partition."""

    def __init__(self, book: PartitionBook) -> None:
        self._book = book
        self._copies: list[Send] = []
        book.message_of = self._message_of
        self._send: Send | None = None
        self._committing: list[Send] = []

    def judge(self, cause: Send | dict[str, Any] | str, lines: list[Line]) -> None:
        """Check the lines, which are the whole effect of the cause."""
        book = self._book
        command = {"type": cause} if isinstance(cause, str) else cause
        book.begin(command if isinstance(command, dict) else {}, lines)
        self._send = cause if isinstance(cause, Send) else None
        self._committing = []
        self._copies = []
        self._rejoin(lines)
        before = {name: len(queue.ready) for name, queue in book.queues.items()}
        given = book.deliveries
        must_end, must_ack = self._expected(command, lines)
        if self._send is not None:
            self._check_entries(self._send, lines)
        elif book.command.get("type") == "credit" and lines[-1]["event"] == "done":
            book.queues[book.command["queue"]].clients[
                book.command["consumer"]
            ].credit += book.command["add"]
        for line in lines:
            if line["event"] in _OURS:
                getattr(self, f"_{line['event']}")(line)
            else:
                if line["event"] == "dispatched":
                    left = [h for h in must_end if h.number in self._held_numbers(line)]
                    demand(not left, "dispatched before all deliveries had ended:", line, left)
                book.read(line)
                if line["event"] == "configured" and line["created"]:
                    self._join(line["queue"])
        self._check_ends(command, must_end, must_ack, given)
        self._check_queues(before, lines)
        if isinstance(command, dict) and lines[-1]["event"] == "done":
            self._alive(command, lines[-1]["time_ms"])
            if command["type"] == "raise_level":
                book.level = int(command["level"])
        if cause == "tick":
            for queue in book.queues.values():
                queue.check_swept(lines[-1]["time_ms"])

    def _held_numbers(self, line: Line) -> set[int]:
        queue = self._book.queue(line["queue"])
        return set(queue.held) if queue is not None else set()

    # --- what comes in ---------------------------------------------------------------------------

    def _message_of(self, line: Line) -> Message:
        sequence, book = line["sequence"], self._book
        if book.moved is not None:
            moved = book.moved
            due_ms = moved.due_ms if moved.due_ms > line["time_ms"] else 0
            return Message(
                sequence, moved.id, moved.source, moved.priority, moved.group, due_ms,
                moved.expires_ms, moved.size_bytes, moved.properties, moved.persistent,
            )  # fmt: skip
        if self._copies:
            return self._copies.pop(0).message(sequence, copied=True)
        if self._committing:
            found = next(each for each in self._committing if each.source == line["source"])
            self._check_new(found, line)
            return found.message(sequence, now_ms=line["time_ms"])
        demand(self._send is not None, "no send has caused it:", line)
        assert self._send is not None
        self._check_new(self._send, line)
        return self._send.message(sequence, now_ms=line["time_ms"])

    def _check_new(self, send: Send, line: Line) -> None:
        """What a producer sends comes in only if it is no repeat (R119)."""
        repeats = self._book.queues[line["queue"]].repeats(send.id, send.now_ms, send.redrive_of)
        demand("id" not in send.said or not repeats, "it was sent within the dedup window:", line)

    def _rejoin(self, lines: list[Line]) -> None:
        """The declared queue is created or recreated when its address or its own name is used."""
        book = self._book
        if not book.plan.addresses or DECLARED in book.members:
            return
        if self._send is not None:
            names = {self._send.queue} if not self._send.xid else set()
        else:
            names = {book.command.get(field, "") for field in ("queue", "address", "to")}
        is_made = book.command.get("type") == "create_queue"
        named = [
            name for name in names
            if name.startswith(f"{ADDRESS}::") and (is_made or name not in book.members)
        ]  # fmt: skip
        if (ADDRESS in names or named) and lines[-1].get("reason") != "bad_selector":
            self._join(DECLARED, lines[0]["time_ms"])

    def _join(self, name: str, now_ms: int = 0) -> None:
        """A queue joins its address and gets the retained messages (R71)."""
        book = self._book
        queue = book.queue(name)
        assert queue is not None
        if not name.startswith(f"{ADDRESS}::"):
            return
        book.members.append(name)
        selector = SELECTORS[queue.spec["selector"]]
        now_ms = now_ms or book.now_ms
        self._copies = [
            send for send in book.kept
            if selector(send.properties()) and not send.message(0, copied=True).is_over(now_ms)
        ]  # fmt: skip

    def _check_entries(self, send: Send, lines: list[Line]) -> None:
        """A send is added to each target queue once (R70), or refused."""
        entries = [line for line in lines if line["event"] in (*_ENTRIES, "refused")]
        found = [line["queue"] for line in entries]
        copies = len(self._copies)
        targets = self._targets(send)
        self._check_pulled(send, lines)
        demand(found[copies:] == targets, targets, "each once:", lines)
        if self._copies:
            demand(found[:copies] == [DECLARED] * copies, "copies first:", lines)
        for line in entries[copies:]:
            if line["event"] == "refused":
                self._check_refused_send(send, line)

    def _check_pulled(self, send: Send, lines: list[Line]) -> None:
        """No message is taken for a queue that is paused or blocks (R60, R90)."""
        book = self._book
        is_address = send.queue == ADDRESS and book.plan.addresses
        for name in book.members if is_address else [send.queue]:
            queue = book.queue(name)
            has_lost = any(line["event"] == "lost" for line in lines)  # so it is not full
            is_taken = queue is None or queue.accepts_sends() or send.xid or has_lost
            demand(is_taken, name, "is not pulled:", lines)

    def _targets(self, send: Send) -> list[str]:
        book = self._book
        if send.xid or send.queue != ADDRESS or not book.plan.addresses:
            return [send.queue]
        wanting = [
            name for name in book.members
            if SELECTORS[book.queues[name].spec["selector"]](send.properties())
        ]  # fmt: skip
        book.keep(send)
        return wanting or [ADDRESS]

    def _check_refused_send(self, send: Send, line: Line) -> None:
        book = self._book
        queue = book.queue(line["queue"])
        if send.xid:
            can = send.owner and book.takes_part(send.xid, send.owner)
            demand(not can, "its transaction is open:", line)
        elif queue is None:
            demand(line["reason"] == "unknown_queue", "there is no such queue:", line)
        elif line["reason"] == "duplicate":
            self._check_duplicate(send, line)
        elif line["reason"] == "bad_command":
            most = queue.spec["max_redrives"]
            demand(
                0 <= most < int(send.said["redrives"] if "redrive-of" in send.said else 0),
                "it was not redriven too often:",
                line,
            )
        else:
            size = send.message(0).size_bytes
            largest = queue.spec["max_message_bytes"]
            if line["reason"] == "too_large":
                if queue.spec["when_full"] == "block" and largest < 0:
                    largest = queue.spec["max_bytes"]
                demand(0 <= largest < size, "it is not too large:", line)
            else:
                is_beyond = queue.exceeds(queue.messages + 1, queue.size_bytes + size)
                demand(is_beyond, "there is room:", line)
                demand(queue.spec["when_full"] == "reject_newest", "it does not refuse:", line)

    def _check_duplicate(self, send: Send, line: Line) -> None:
        queue = self._book.queues[line["queue"]]
        is_repeat = queue.repeats(line["about"], send.now_ms, send.redrive_of)
        demand(is_repeat and line["about"] == send.id, "it was not sent within the window:", line)
        demand("id" in send.said, "it is not tested:", line)

    # --- transactions by xid ---------------------------------------------------------------------

    def _pending(self, line: Line) -> None:
        book = self._book
        known = book.xids.get(line["xid"])
        demand(known is not None and not known["prepared"], "the xid is not open:", line)
        assert known is not None
        owner = self._send.owner if self._send is not None else book.command.get("owner", "")
        demand(owner == known["owner"], "another owner began it:", line)
        if self._send is not None:
            demand(owner, "a record shows an owner:", line)
            known["operations"].append(self._send)
            return
        queue = book.queue(line["queue"])
        assert queue is not None
        held = next(
            (
                h
                for h in queue.held_by(book.command["consumer"])
                if h.message.id == line["about"] and not h.xid
            ),
            None,
        ) or self._companion(line)
        held.xid = line["xid"]
        known["operations"].append((queue.name, held))

    def _companion(self, line: Line) -> Held:
        """A delivery of another consumer of the session (R16)."""
        queue = self._book.queues[line["queue"]]
        found = [h for h in queue.held.values() if h.message.id == line["about"] and not h.xid]
        demand(found, "no consumer holds it:", line)
        return found[0]

    def _decided(self, line: Line) -> None:
        known = self._book.xids.pop(line["xid"], None)
        demand(known is not None, "it was decided:", line)
        assert known is not None
        kind = self._book.command["type"]
        demand(line["committed"] == (kind == "commit"), "no command asked for that:", line)
        demand(kind not in ("start", "tick") or not known["prepared"], "it was prepared:", line)
        demand(kind != "tick" or known["until_ms"] <= line["time_ms"], "it had time:", line)

    # --- settles and returns ---------------------------------------------------------------------

    def _expected(
        self, command: dict[str, Any] | Send, lines: list[Line]
    ) -> tuple[list[Held], list[int]]:
        """The deliveries that must end, and those that must be acked."""
        if isinstance(command, Send):
            return [], []
        kind = command["type"]
        if kind in ("ack", "release", "reject"):
            return self._expected_of_settle(command, lines)
        if kind == "ack_many":
            return [], self._expected_of_acks(command, lines)
        if kind == "apply":
            is_refused = lines[-1]["event"] == "refused"
            said = command["revision"], command["configuration"], command["who"]
            is_old = said[0] <= self._book.applied[0] and said != self._book.applied
            demand(is_refused == is_old, "refused if, and only if, it is not newer:", lines)
        is_look = all(line["event"] == "lost" for line in lines)
        if kind == "tick" or is_look or lines[-1]["event"] == "refused":
            return [], []
        queues = self._book.queues
        if kind in ("detach", "recover"):
            return _free(queues[command["queue"]], command["consumer"]), []
        if kind == "delete_queue":
            queue = queues.get(command["queue"])
            clients = queue.clients if queue is not None else {}
            return [held for name in clients for held in _free(queue, name)], []
        if kind == "rollback":
            return [
                held
                for queue, name in self._session(command["session"])
                for held in _free(queue, name)
            ], []
        known = self._book.xids.get(command.get("xid", ""))
        if kind == "commit" and known is not None:
            demand(known["prepared"], "it is not prepared:", lines)
            operations = known["operations"]
            self._committing = [each for each in operations if isinstance(each, Send)]
            for send in self._committing:
                self._check_committed(send)
            return [], [each[1].number for each in operations if not isinstance(each, Send)]
        undone = [known] if kind == "rollback_xid" and known is not None else []
        if kind == "start":
            undone = [each for each in self._book.xids.values() if not each["prepared"]]
        settled = [op for each in undone for op in each["operations"] if not isinstance(op, Send)]
        return [held for _, held in settled], []

    def _check_committed(self, send: Send) -> None:
        if send.queue == ADDRESS and self._book.plan.addresses:
            self._book.keep(send)

    def _expected_of_settle(
        self, settle: dict[str, Any], lines: list[Line]
    ) -> tuple[list[Held], list[int]]:
        queue = self._book.queue(settle["queue"])
        refused = lines[-1]["reason"] if lines[-1]["event"] == "refused" else ""
        if queue is not None and queue.spec["window"]:
            queue.ever.add(WINDOW)  # it attaches when the queue is met
        reason = "unknown_queue" if queue is None else queue.judge(settle)
        if xid := settle.get("xid"):
            can = self._book.takes_part(xid, settle.get("owner", ""))
            reason = reason if can else "bad_command"
        demand(refused == reason, f"the answer must be {reason or 'ok'!r}:", lines)
        if reason or xid:
            return [], []
        assert queue is not None
        named = [h for h in _free(queue, settle["consumer"]) if h.message.id == settle["message"]]
        held = next(h for h in named if settle.get("delivery", 0) in (0, h.number))
        if settle["type"] != "ack":
            return [held], []
        client = queue.clients[held.consumer]
        covered = self._covered(queue, client, held.number)
        return [], covered if client.mode == "client" else [held.number]

    def _expected_of_acks(self, acks: dict[str, Any], lines: list[Line]) -> list[int]:
        """Each delivery that has ended is refused alone, and one that is named twice acked once."""
        queue = self._book.queue(acks["queue"])
        if queue is not None and queue.spec["window"]:
            queue.ever.add(WINDOW)
        verdicts: list[tuple[str, str]] = []
        accepted: list[int] = []
        for number, message in acks["deliveries"]:
            ack = {"consumer": acks["consumer"], "message": message, "delivery": number}
            reason = "unknown_queue" if queue is None else queue.judge(ack)
            if reason or number in accepted:
                verdicts.append((message, reason or "stale_delivery"))
            else:
                accepted.append(number)
        whole = next((reason for _, reason in verdicts if reason in _OF_THE_WHOLE), "")
        refused = lines[-1]["reason"] if lines[-1]["event"] == "refused" else ""
        demand(refused == whole, f"the answer must be {whole or 'ok'!r}:", lines)
        if whole:
            return []
        said = [
            (line["about"], line["reason"])
            for line in lines
            if line["event"] == "refused" and line["reason"] not in OF_SENDS
        ]
        demand(said == verdicts, "refused:", said, "but these have ended:", verdicts)
        assert queue is not None
        client = queue.clients[acks["consumer"]] if accepted else None
        if client is not None and client.mode == "client":
            return self._covered(queue, client, max(accepted))
        return accepted

    def _covered(self, queue: QueueBook, client: Client, last: int) -> list[int]:
        """What an ack of this delivery acks in mode `client` (R16)."""
        mine = self._session(client.session) if client.session else [(queue, client.name)]
        numbers = [h.number for other, name in mine for h in _free(other, name)]
        return sorted(number for number in numbers if number <= last)

    def _session(self, name: str) -> list[tuple[QueueBook, str]]:
        return [
            (queue, client.name)
            for queue in self._book.queues.values()
            for client in queue.clients.values()
            if client.session == name
        ]

    def _check_ends(
        self,
        command: dict[str, Any] | Send,
        must_end: list[Held],
        must_ack: list[int],
        given: int,
    ) -> None:
        """`given`: the last delivery before it."""
        book = self._book
        kind = "" if isinstance(command, Send) else command["type"]
        demand(book.acked == must_ack, "acked", book.acked, "but it asked for", must_ack)
        if kind == "delete_queue":  # it may have been created for that, with a managed window
            must_end = must_end + [held for _, held in book.ended if held.number > given]
        if kind not in ("tick", "configure", "apply"):
            numbers = sorted(held.number for _, held in book.ended)
            wanted = sorted(held.number for held in must_end)
            demand(numbers == wanted, "ended:", numbers, "but it asked for", wanted)
        sets: dict[tuple[str, str], list[Any]] = {}
        for name, held in book.ended if kind != "start" else ():
            consumer = held.consumer if kind in ("tick", "delete_queue") else ""
            consumer = f"xid {held.xid}" if kind == "tick" and held.xid else consumer
            sets.setdefault((name, consumer), []).append(_position(held))
        for positions in sets.values():
            demand(positions == sorted(positions, reverse=True), "not newest first:", positions)

    def _alive(self, command: dict[str, Any], now_ms: int) -> None:
        """A consumer whose command was accepted is alive (R13)."""
        name, kind = command.get("consumer", ""), command["type"]
        queue = self._book.queues.get(command.get("queue", ""))
        is_sign = kind in _SIGNS or (kind == "ack_many" and bool(self._book.acked))
        if queue is not None and name in queue.clients and is_sign:
            queue.clients[name].seen_ms = now_ms
        if kind == "rollback":
            for other, consumer in self._session(command["session"]):
                other.clients[consumer].seen_ms = now_ms
        if kind == "begin":
            until_ms = now_ms + command.get("timeout_ms", 300_000)
            begun = {"owner": command["owner"], "until_ms": until_ms}
            self._book.xids[command["xid"]] = {**begun, "prepared": False, "operations": []}
        if kind == "prepare":
            self._book.xids[command["xid"]]["prepared"] = True

    # --- after the group -------------------------------------------------------------------------

    def _check_queues(self, before: dict[str, int], lines: list[Line]) -> None:
        book = self._book
        demand(not self._copies, "copies are missing:", self._copies)
        for queue in book.queues.values() if book.command.get("type") == "apply" else ():
            wanted = book.settings_of(queue)
            demand(queue.spec == wanted, queue.name, "has", queue.spec, "but should have", wanted)
        for name in {line.get("queue", "") for line in lines} & set(book.queues):
            queue = book.queues[name]
            ring_size, ready = queue.spec["ring_size"], len(queue.ready)
            grew = ready > max(ring_size, before.get(name, 0))
            demand(ring_size < 0 or not grew, name, ready, "ready in a ring of", ring_size)
            queue.check_dispatched(lines[-1]["time_ms"])
            came = [each for each, _ in book.adds].count(name)
            demand(book.overflows.count(name) <= came, name, "evicts more than one for a send")
            is_expired = any(line["event"] == "expired" for line in lines)
            if came and not is_expired and queue.spec["when_full"] != "block":
                is_beyond = queue.exceeds(queue.messages, queue.size_bytes)
                is_left = queue.ready and queue.spec["when_full"].startswith("drop_")
                is_left = is_left and queue.spec["when_full"] != "drop_newest"
                demand(not (is_beyond and is_left), name, "is beyond its limits:", lines)

    def _unrouted(self, line: Line) -> None:
        demand(line["queue"] == ADDRESS, "it is not an address:", line)

    def _refused(self, line: Line) -> None:
        """Check a refused copy for a queue that just joined; others belong to the cause."""
        if self._copies and line["reason"] in ("queue_full", "too_large"):
            copy = self._copies.pop(0)
            demand(line["about"] == copy.id, copy.id, "is the next copy:", line)
        elif self._committing and line["reason"] == "duplicate":
            sends = (each for each in self._committing if each.id == line["about"])
            self._check_duplicate(next(sends), line)

    def _done(self, line: Line) -> None:
        """Message with the cause."""


_OF_THE_WHOLE = ("unknown_queue", "bad_command")
"""Reasons that refuse an `ack_many` as a whole."""
OF_SENDS = ("queue_full", "too_large", "duplicate")
_OURS = frozenset(("unrouted", "refused", "done", "pending", "decided"))
_SIGNS = frozenset(
    ("attach", "subscribe", "credit", "heartbeat", "ack", "release", "reject", "recover")
)


def _free(queue: QueueBook | None, consumer: str) -> list[Held]:
    """The deliveries of a consumer that are not part of an undecided transaction."""
    assert queue is not None
    held = queue.held_by(consumer) if consumer in queue.clients else []
    return [each for each in held if not each.xid]


def _position(held: Held) -> tuple[int, ...]:
    return held.message.position
