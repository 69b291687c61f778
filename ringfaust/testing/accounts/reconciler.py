"""The book that proves the accounts: each record of the input topics has exactly one fate.

Of one that was sent to an address, each copy has (R70); one that waits for the decision about its
distributed transaction has none yet (R81). The book is filled with what the topics hold, in the
order of each partition, and knows nothing of the engine: a second opinion, from the protocol alone.
No I/O; `accounts.py` brings the records.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ringfaust.core.address import address_of
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import InRecord
from ringfaust.testing.accounts.lifecycles import (
    STATES,
    AddressCopies,
    MessageLifecycles,
    OpenXids,
    foreign,
    ids_of,
    name_of,
    unreadable_of,
)
from ringfaust.testing.accounts.proof import Proof, QueueAccount

Key = tuple[Any, ...]
Headers = Mapping[str, bytes]
Line = dict[str, Any]


class Reconciler:
    """Fill it (inputs and hop first, the others in any order), then ask for the `proof`.

    Args:
        input_topics: the producers' topics.
        evicted_payload: as the queues are set; only `full` lets evicted records be compared.
    """

    def __init__(self, input_topics: Collection[str], evicted_payload: str = "full") -> None:
        self._inputs = frozenset(input_topics)
        self._compare_evicted = evicted_payload == "full"
        self._digests: dict[str, int] = {}
        self._hopped: dict[str, str] = {}
        self._fates: dict[str, str] = {}
        self._queue_of: dict[str, str] = {}
        self._copies = AddressCopies()
        self._undecided = OpenXids()
        self._lives: dict[str, MessageLifecycles] = {}
        self._rows: dict[str, QueueAccount] = {}
        self._told: dict[tuple[str, int], list[Key]] = {}
        self._seen: dict[tuple[str, int], list[Key]] = {}
        self._doubled: dict[str, None] = {}
        self._altered: dict[str, None] = {}
        self._unexplained: dict[str, None] = {}
        self._faults: list[str] = []
        self._partition = 0
        self._on: dict[str, Callable[[Line], None]] = {
            "added": self._on_added,
            "scheduled": self._on_added,
            "due": self._on_due,
            "dispatched": self._on_dispatched,
            "returned": self._on_returned,
            "acked": self._on_acked,
            "evicted": self._on_evicted,
            "expired": self._on_expired,
            "dead": self._on_dead,
            "lost": self._on_lost,
            "unrouted": self._on_unrouted,
            "pending": self._on_pending,
            "decided": self._on_decided,
            "removed": self._on_removed,
            "moved_out": self._on_moved_out,
            "deleted": self._on_deleted,
            "refused": self._on_refused,
            "unreadable": self._on_unreadable,
        }

    # --- what the topics hold --------------------------------------------------------------------

    def take_input(self, records: Sequence[InRecord]) -> None:
        """Records of an input topic."""
        digests = self._digests
        for record in records:
            source = f"{record.topic}/{record.partition}/{record.offset}"
            digests[source] = hash((record.key, record.value, foreign(record)))

    def take_hop(self, records: Sequence[InRecord]) -> None:
        """Records of the hop topic: where those came from that could not be read after it."""
        for record in records:
            source = dict(record.headers).get(h.SOURCE, b"").decode()
            self._hopped[f"{record.topic}/{record.partition}/{record.offset}"] = source

    def take_evicted(self, records: Sequence[InRecord]) -> None:
        """Records of the evicted topic."""
        seen = self._list(self._seen, "evicted", records)
        for record in records:
            ours = dict(record.headers)
            queue, source = ours[h.QUEUE].decode(), ours[h.SOURCE].decode()
            seen.append((queue, int(ours[h.SEQUENCE])))
            self._row(queue).evicted += 1
            self._fate(source, "evicted", queue)
            if self._compare_evicted:
                self._compare(source, record)

    def take_dead(self, records: Sequence[InRecord]) -> None:
        """Records of the dead topic."""
        seen = self._list(self._seen, "dead", records)
        for record in records:
            ours = dict(record.headers)
            source, reason = ours[h.SOURCE].decode(), ours[h.REASON].decode()
            if h.SEQUENCE not in ours:
                self._seen.setdefault(unreadable_of(source), []).append(("", source))
                self._take_unreadable(source, reason, record)
                continue
            queue = ours[h.QUEUE].decode()
            sequence = int(ours[h.SEQUENCE])
            seen.append((queue, sequence))
            fate = ("expired" if reason == "expired" else "dead") if sequence else "refused"
            row = self._row(queue)
            setattr(row, fate, getattr(row, fate) + 1)
            if sequence:
                self._fate(source, fate, queue)
            else:
                self._refused(source, queue)
            self._compare(source, record)

    def _take_unreadable(self, source: str, reason: str, record: InRecord) -> None:
        source = self._hopped.get(source, source)
        if self._topic(source) not in self._inputs:
            return  # a control record
        self._fate(source, "unreadable", "")
        if reason != "too_large":  # those go by reference
            self._compare(source, record)

    def take_dispatched(self, records: Sequence[InRecord]) -> None:
        """Records of the dispatched topic."""
        seen = self._list(self._seen, "dispatched", records)
        for record in records:
            ours = dict(record.headers)
            queue, number = ours[h.QUEUE].decode(), int(ours[h.DELIVERY])
            seen.append((queue, int(ours[h.SEQUENCE]), number, ours[h.CONSUMER].decode()))
            self._compare(ours[h.SOURCE].decode(), record)

    def take_events(self, records: Sequence[InRecord]) -> None:
        """Records of the events topic."""
        for record in records:
            self._partition = record.partition
            value = (record.value or b"").replace(b"\n", b",")
            try:
                lines: list[Line] = json.loads(b"[%b]" % value)
            except ValueError:
                self._fault(f"events {record.partition}/{record.offset} are no lines of JSON")
                continue
            for line in lines:
                take = self._on.get(line["event"])
                if take is not None:
                    take(line)

    # --- events ----------------------------------------------------------------------------------

    def _on_added(self, line: Line) -> None:
        queue, sequence, source = line["queue"], line["sequence"], line["source"]
        life = self._life(queue)
        self._row(queue).added += 1
        if sequence in life.open:
            self._fault(f"{name_of(queue, sequence)} was added twice", queue)
        life.open[sequence] = (line["id"], source)
        if line["event"] == "scheduled":
            life.scheduled.add(sequence)
        if source not in self._digests:
            self._unexplained[source] = None
        elif address_of(queue):
            self._copies.add(source, queue)
            return
        elif source in self._queue_of:
            self._doubled[source] = None
        self._queue_of[source] = queue

    def _on_due(self, line: Line) -> None:
        life, sequence = self._expect(line, "scheduled")
        life.scheduled.discard(sequence)

    def _on_dispatched(self, line: Line) -> None:
        life, sequence = self._expect(line, "ready")
        life.delivering[sequence] = line["delivery"]
        key = (line["queue"], sequence, line["delivery"], line["consumer"])
        self._tell("dispatched", key)

    def _on_returned(self, line: Line) -> None:
        life, sequence = self._expect(line, "delivering")
        if life.delivering.pop(sequence, None) != line["delivery"]:
            self._fault(f"{name_of(line['queue'], sequence)} came back from another delivery")
        if "due_ms" in line:
            life.scheduled.add(sequence)

    def _on_acked(self, line: Line) -> None:
        source = self._leave(line, "delivering")
        self._row(line["queue"]).acked += 1
        self._fate(source, "acked", line["queue"])

    def _on_evicted(self, line: Line) -> None:
        match line["reason"]:
            case "return_overflow":
                self._leave(line, "delivering")
            case "scheduled_overflow":
                self._leave(line, "scheduled", "ready")
            case "limit":
                self._leave(line, "ready", "scheduled")
            case _:
                self._leave(line, "ready")
        self._tell("evicted", (line["queue"], line["sequence"]))

    def _on_expired(self, line: Line) -> None:
        if line["delivery"]:
            self._leave(line, "delivering")
        else:
            self._leave(line, "ready", "scheduled")
        self._tell("dead", (line["queue"], line["sequence"]))

    def _on_dead(self, line: Line) -> None:
        if line["sequence"]:  # else its queue has refused it, and it never was in there
            self._leave(line, "delivering")
        self._tell("dead", (line["queue"], line["sequence"]))

    def _on_lost(self, line: Line) -> None:
        source = self._leave(line, *STATES)
        self._row(line["queue"]).lost += 1
        self._fate(source, "lost", line["queue"])

    def _on_unrouted(self, line: Line) -> None:
        self._explain(line["source"])

    def _on_pending(self, line: Line) -> None:
        source = self._source(line["by"])
        if self._topic(source) in self._inputs:  # else it is about an ack
            self._undecided.wait(self._partition, line["xid"], source)

    def _on_decided(self, line: Line) -> None:
        """Of a commit the sends have been told of by now, but for those to no queue."""
        sources, refused = self._undecided.decide(self._partition, line["xid"], line["by"])
        for source in sources:
            if not line["committed"]:
                self._fate(source, "rolled_back", "")
            elif source not in self._queue_of and source not in self._copies and refused:
                refused -= 1
                self._refused(source, "")

    def _on_removed(self, line: Line) -> None:
        source = self._leave(line, "ready", "scheduled")
        self._row(line["queue"]).removed += 1
        self._fate(source, "removed", line["queue"])

    def _on_moved_out(self, line: Line) -> None:
        source = self._leave(line, "ready", "scheduled")
        self._row(line["queue"]).moved_out += 1
        if address_of(line["queue"]):
            self._copies.end(source, line["queue"])
        else:
            self._queue_of.pop(source, None)  # its fate is another queue's to tell

    def _on_deleted(self, line: Line) -> None:
        queue = line["queue"]
        for sequence in self._life(queue).open:
            self._fault(f"{name_of(queue, sequence)} was held when its queue was deleted", queue)
        self._lives[queue] = MessageLifecycles()  # a later queue of this name counts from one again

    def _on_refused(self, line: Line) -> None:
        source = self._source(line["by"])
        if self._topic(source) in self._inputs:
            self._refused(source, line["queue"])
        elif line["reason"] not in ("queue_full", "too_large"):  # of those the dead topic tells
            self._undecided.refused(line["by"])

    def _on_unreadable(self, line: Line) -> None:
        source = line["by"]
        self._told.setdefault(unreadable_of(source), []).append(("", source))

    def _expect(self, line: Line, *states: str) -> tuple[MessageLifecycles, int]:
        """The message's life; that it was there, in one of these states, is checked."""
        queue, sequence = line["queue"], line["sequence"]
        life = self._life(queue)
        if sequence not in life.open:
            text = f"{name_of(queue, sequence)} was {line['event']} while it was not in the queue"
            self._fault(text, queue)
        elif (state := life.state(sequence)) not in states:
            self._fault(f"{name_of(queue, sequence)} was {line['event']} while {state}", queue)
        return life, sequence

    def _leave(self, line: Line, *states: str) -> str:
        """The message leaves its queue; its source."""
        life, sequence = self._expect(line, *states)
        life.delivering.pop(sequence, None)
        life.scheduled.discard(sequence)
        return life.open.pop(sequence, ("", ""))[1]

    # --- small helpers ---------------------------------------------------------------------------

    def _row(self, queue: str) -> QueueAccount:
        row = self._rows.get(queue)
        if row is None:
            row = self._rows[queue] = QueueAccount(queue)
        return row

    def _life(self, queue: str) -> MessageLifecycles:
        life = self._lives.get(queue)
        if life is None:
            life = self._lives[queue] = MessageLifecycles()
        return life

    def _fault(self, text: str, queue: str = "") -> None:
        self._faults.append(text)
        if queue:
            self._row(queue).faults += 1

    def _source(self, by: str) -> str:
        """The producer's record that an event is about, also if it took the hop."""
        return self._hopped.get(by, by)

    def _explain(self, source: str) -> None:
        """A record of an address has come to something."""
        if source in self._digests:
            self._copies.explain(source)
        else:
            self._unexplained[source] = None

    def _refused(self, source: str, queue: str) -> None:
        """A queue did not take it; that is told by an event, and by a dead record perhaps."""
        if address_of(queue):
            self._explain(source)
        elif self._fates.get(source) != "refused":
            self._fate(source, "refused", "")

    def _fate(self, source: str, fate: str, queue: str) -> None:
        """One record has come to its end."""
        if source not in self._digests:
            if source:
                self._unexplained[source] = None
        elif address_of(queue):
            self._copies.end(source, queue)
        elif source in self._fates:
            self._doubled[source] = None
            if queue:
                self._row(queue).faults += 1
        else:
            self._fates[source] = fate

    def _compare(self, source: str, record: InRecord) -> None:
        digest = self._digests.get(source)
        if digest is None:
            self._unexplained[source] = None
        elif digest != hash((record.key, record.value, foreign(record))):
            self._altered[source] = None

    def _tell(self, role: str, key: Key) -> None:
        self._told.setdefault((role, self._partition), []).append(key)

    def _list(
        self, lists: dict[tuple[str, int], list[Key]], role: str, records: Sequence[InRecord]
    ) -> list[Key]:
        return lists.setdefault((role, records[0].partition), []) if records else []

    @staticmethod
    def _topic(source: str) -> str:
        return source.rsplit("/", 2)[0]

    # --- the verdict -----------------------------------------------------------------------------

    def proof(self, held: Mapping[str, Mapping[str, Any]] | None = None) -> Proof:
        """The verdict over all that was taken. Ask once.

        Args:
            held: by queue, the `answer` of the protocol's `list`; without it, what is held is
                taken from the events.
        """
        for role, partition in sorted(self._told.keys() | self._seen.keys()):
            self._match(role, partition)
        for queue in sorted(self._lives.keys() | (held or {}).keys()):
            listed = self._from_events(queue) if held is None else held.get(queue)
            self._take_held(queue, listed)
        for source in self._undecided.left():
            self._fate(source, "pending", "")
        missing = self._missing()
        fates = Counter(self._fates.values())
        return Proof(
            rows=dict(sorted(self._rows.items())),
            inputs=len(self._digests),
            unreadable=fates["unreadable"],
            refused=fates["refused"],
            rolled_back=fates["rolled_back"],
            pending=fates["pending"],
            missing=missing,
            doubled=list(self._doubled),
            altered=list(self._altered),
            unexplained=list(self._unexplained),
            faults=self._faults,
        )

    def _missing(self) -> list[str]:
        """The records without a fate, and those of which a copy has none."""
        known = self._fates.keys()
        missing = {s: None for s in self._digests if s not in known and s not in self._copies}
        for source in missing:
            if queue := self._queue_of.get(source, ""):
                self._row(queue).faults += 1
        for source, queue, count in self._copies.unsettled():
            (missing if count > 0 else self._doubled)[source] = None
            self._row(queue).faults += 1
        return list(missing)

    def _match(self, role: str, partition: int) -> None:
        """The records of a partition are those that the events tell of, in their order."""
        told = self._told.get((role, partition), [])
        seen = self._seen.get((role, partition), [])
        if told == seen:
            return
        where = f"topic of {role}, partition {partition}"
        by_events, by_records = Counter(told), Counter(seen)
        if by_events == by_records:
            self._fault(f"{where}: its records are not in the order of the events")
        for key in by_events.keys() | by_records.keys():
            if by_events[key] != by_records[key]:
                name = name_of(*key) if key[0] else f"the unreadable record {key[1]}"
                text = f"{where}: {by_records[key]} records of {name}, by the events it is"
                self._fault(f"{text} {by_events[key]}", key[0])

    def _from_events(self, queue: str) -> dict[str, Any]:
        life = self._life(queue)
        by_state: dict[str, list[str]] = {state: [] for state in STATES}
        for sequence, (message_id, _) in life.open.items():
            by_state[life.state(sequence)].append(message_id)
        return {**by_state, "delivering": {"": by_state["delivering"]}}

    def _take_held(self, queue: str, listed: Mapping[str, Any] | None) -> None:
        """What a queue says it holds: it is what the events left there, and each a fate."""
        life, row = self._life(queue), self._row(queue)
        by_name: dict[tuple[str, str], list[str]] = {}
        for sequence, (message_id, source) in life.open.items():
            by_name.setdefault((life.state(sequence), message_id), []).append(source)
        if listed is None:
            if life.open:
                self._fault(f"queue {queue} holds {len(life.open):,}, but was not listed", queue)
            return
        for state in STATES:
            ids = ids_of(listed[state])
            setattr(row, state, len(ids))
            counted = listed.get("counts", {}).get(state, len(ids))
            if counted != len(ids):
                text = f"queue {queue}: {counted:,} are {state}, but {len(ids):,} were listed"
                self._fault(text, queue)
            for message_id in ids:
                sources = by_name.get((state, message_id))
                if sources:
                    self._fate(sources.pop(), state, queue)
                else:
                    self._fault(f"queue {queue} lists {message_id} as {state}, in vain", queue)
        for (state, message_id), sources in by_name.items():
            if sources:
                self._fault(f"queue {queue} does not list {message_id}, which is {state}", queue)
