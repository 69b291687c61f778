"""The reconciler: checks that each record of the input topics has exactly one outcome.

For a record sent to an address, each copy has one (R70). A record that waits for the decision about
its distributed transaction has none yet (R81). The reconciler takes the contents of the topics in
the order of each partition. It does not use the engine, so it is an independent check of the
protocol. It does no I/O; `prove` reads the records.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ringfaust.core.address import address_of
from ringfaust.protocol import headers as h
from ringfaust.protocol.cloud_events import is_undecodable, without_attributes
from ringfaust.protocol.records import InRecord
from ringfaust.testing.accounts.lifecycles import (
    STATES,
    AddressCopies,
    FormerMessages,
    OpenXids,
    QueueLifecycles,
    describe,
    ids_of,
    producer_headers,
    undecodable_list,
)
from ringfaust.testing.accounts.proof import Proof, QueueAccount

Key = tuple[Any, ...]
Headers = Mapping[str, bytes]
Line = dict[str, Any]


class Reconciler:
    """Takes the records of all topics, then returns the `proof`.

    Take the input topics and the repartition topic first, the others in any order.

    Args:
        input_topics: the producers' topics.
        evicted_payload: the queues' setting of this name; evicted records are compared only if it
            is `full`.
        begins: by topic and partition, the first offset that exists, where that is not 0. Earlier
            records have outcomes but cannot be compared.
    """

    def __init__(
        self,
        input_topics: Collection[str],
        evicted_payload: str = "full",
        begins: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        self._inputs = frozenset(input_topics)
        self._begins = dict(begins or {})
        self._gaps: list[str] = []
        self._former = FormerMessages()
        self._compare_evicted = evicted_payload == "full"
        self._digests: dict[str, int] = {}
        self._repartitioned: dict[str, str] = {}
        self._outcomes: dict[str, str] = {}
        self._queue_of: dict[str, str] = {}
        self._copies = AddressCopies()
        self._open_xids = OpenXids()
        self._lifecycles: dict[str, QueueLifecycles] = {}
        self._accounts: dict[str, QueueAccount] = {}
        self._expected: dict[tuple[str, int], list[Key]] = {}
        self._found: dict[tuple[str, int], list[Key]] = {}
        self._duplicated: dict[str, None] = {}
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
            "unreadable": self._on_undecodable,
            "gap": self._on_gap,
        }

    # --- records ---------------------------------------------------------------------------------

    def take_input(self, records: Sequence[InRecord]) -> None:
        """Take records of an input topic."""
        digests = self._digests
        for record in records:
            source = f"{record.topic}/{record.partition}/{record.offset}"
            digests[source] = hash((record.key, record.value, producer_headers(record.headers)))

    def take_repartitioned(self, records: Sequence[InRecord]) -> None:
        """Take records of the repartition topic, to find the source of undecodable ones."""
        for record in records:
            source = dict(record.headers).get(h.SOURCE, b"").decode()
            self._repartitioned[f"{record.topic}/{record.partition}/{record.offset}"] = source

    def take_evicted(self, records: Sequence[InRecord]) -> None:
        """Take records of the evicted topic."""
        found = self._list(self._found, "evicted", records)
        for record in records:
            ours = dict(record.headers)
            queue, source = ours[h.QUEUE].decode(), ours[h.SOURCE].decode()
            found.append((queue, int(ours[h.SEQUENCE])))
            self._account(queue).evicted += 1
            if self._former.has(queue, int(ours[h.SEQUENCE]), source):
                continue
            self._record_outcome(source, "evicted", queue)
            if self._compare_evicted:
                self._compare(source, record)

    def take_dead(self, records: Sequence[InRecord]) -> None:
        """Take records of the dead topic."""
        found = self._list(self._found, "dead", records)
        for record in records:
            ours = dict(record.headers)
            source, reason = ours[h.SOURCE].decode(), ours[h.REASON].decode()
            if is_undecodable(record.headers):
                self._found.setdefault(undecodable_list(source), []).append(("", source))
                self._take_undecodable(source, reason, record)
                continue
            queue = ours[h.QUEUE].decode()
            sequence = int(ours[h.SEQUENCE])
            found.append((queue, sequence))
            outcome = ("expired" if reason == "expired" else "dead") if sequence else "refused"
            account = self._account(queue)
            setattr(account, outcome, getattr(account, outcome) + 1)
            if self._former.has(queue, sequence, source):
                continue
            if sequence:
                self._record_outcome(source, outcome, queue)
            else:
                self._refused(source, queue)
            self._compare(source, record)

    def _take_undecodable(self, source: str, reason: str, record: InRecord) -> None:
        source = self._repartitioned.get(source, source)
        if self._topic(source) not in self._inputs:
            return  # a control record
        self._record_outcome(source, "unreadable", "")
        if reason != "too_large":  # oversized records are only referenced
            self._compare(source, record)

    def take_dispatched(self, records: Sequence[InRecord]) -> None:
        """Take records of the dispatched topic."""
        found = self._list(self._found, "dispatched", records)
        for record in records:
            ours = dict(record.headers)
            queue, number = ours[h.QUEUE].decode(), int(ours[h.DELIVERY])
            sequence, source = int(ours[h.SEQUENCE]), ours[h.SOURCE].decode()
            found.append((queue, sequence, number, ours[h.CONSUMER].decode()))
            if not self._former.has(queue, sequence, source):
                self._compare(source, record)

    def take_events(self, records: Sequence[InRecord]) -> None:
        """Take records of the events topic."""
        for record in records:
            self._partition = record.partition
            value = (record.value or b"").replace(b"\n", b",")
            try:
                lines: list[Line] = json.loads(b"[%b]" % value)
            except ValueError:
                self._fault(f"events {record.partition}/{record.offset} is not lines of JSON")
                continue
            for line in lines:
                take = self._on.get(line["event"])
                if take is not None:
                    take(line)

    # --- events ----------------------------------------------------------------------------------

    def _on_added(self, line: Line) -> None:
        queue, sequence, source = line["queue"], line["sequence"], line["source"]
        lifecycle = self._lifecycle(queue)
        self._account(queue).added += 1
        if sequence in lifecycle.open:
            self._fault(f"{describe(queue, sequence)} was added twice", queue)
        lifecycle.open[sequence] = (line["id"], source)
        lifecycle.last_sequence = sequence
        if line["event"] == "scheduled":
            lifecycle.scheduled.add(sequence)
        if not self._is_known(source):
            self._unexplained[source] = None
        elif address_of(queue):
            self._copies.add(source, queue)
            return
        elif source in self._queue_of:
            self._duplicated[source] = None
        self._queue_of[source] = queue

    def _on_due(self, line: Line) -> None:
        lifecycle, sequence = self._check_state(line, "scheduled")
        lifecycle.scheduled.discard(sequence)

    def _on_dispatched(self, line: Line) -> None:
        lifecycle, sequence = self._check_state(line, "ready")
        lifecycle.delivering[sequence] = line["delivery"]
        key = (line["queue"], sequence, line["delivery"], line["consumer"])
        self._expect_record("dispatched", key)

    def _on_returned(self, line: Line) -> None:
        lifecycle, sequence = self._check_state(line, "delivering")
        if lifecycle.delivering.pop(sequence, None) != line["delivery"]:
            self._fault(f"{describe(line['queue'], sequence)} returned from another delivery")
        if "due_ms" in line:
            lifecycle.scheduled.add(sequence)

    def _on_acked(self, line: Line) -> None:
        source = self._leave(line, "delivering")
        self._account(line["queue"]).acked += 1
        self._record_outcome(source, "acked", line["queue"])

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
        self._expect_record("evicted", (line["queue"], line["sequence"]))

    def _on_expired(self, line: Line) -> None:
        if line["delivery"]:
            self._leave(line, "delivering")
        else:
            self._leave(line, "ready", "scheduled")
        self._expect_record("dead", (line["queue"], line["sequence"]))

    def _on_dead(self, line: Line) -> None:
        if line["sequence"]:  # otherwise the queue refused it and never held it
            self._leave(line, "delivering")
        self._expect_record("dead", (line["queue"], line["sequence"]))

    def _on_lost(self, line: Line) -> None:
        source = self._leave(line, *STATES)
        self._account(line["queue"]).lost += 1
        self._record_outcome(source, "lost", line["queue"])

    def _on_unrouted(self, line: Line) -> None:
        self._explain(line["source"])

    def _on_pending(self, line: Line) -> None:
        source = self._source(line["by"])
        if self._topic(source) in self._inputs:  # otherwise it is about an ack
            self._open_xids.wait(self._partition, line["xid"], source)

    def _on_decided(self, line: Line) -> None:
        """Events have reported the sends of a commit by now, except those to an unknown queue."""
        sources, refused = self._open_xids.decide(self._partition, line["xid"], line["by"])
        for source in sources:
            if not line["committed"]:
                self._record_outcome(source, "rolled_back", "")
            elif source not in self._queue_of and source not in self._copies and refused:
                refused -= 1
                self._refused(source, "")

    def _on_removed(self, line: Line) -> None:
        source = self._leave(line, "ready", "scheduled")
        self._account(line["queue"]).removed += 1
        self._record_outcome(source, "removed", line["queue"])

    def _on_moved_out(self, line: Line) -> None:
        source = self._leave(line, "ready", "scheduled")
        self._account(line["queue"]).moved_out += 1
        if address_of(line["queue"]):
            self._copies.end(source, line["queue"])
        else:
            self._queue_of.pop(source, None)  # the other queue reports its outcome

    def _on_deleted(self, line: Line) -> None:
        queue = line["queue"]
        for sequence in self._lifecycle(queue).open:
            self._fault(f"{describe(queue, sequence)} was held when its queue was deleted", queue)
        self._lifecycles[queue] = (
            QueueLifecycles()
        )  # a later queue of this name counts from one again

    def _on_refused(self, line: Line) -> None:
        source = self._source(line["by"])
        if self._topic(source) in self._inputs:
            self._refused(source, line["queue"])
        elif line["reason"] not in ("queue_full", "too_large"):  # those have a dead record
            self._open_xids.refused(line["by"])

    def _on_undecodable(self, line: Line) -> None:
        source = line["by"]
        self._expected.setdefault(undecodable_list(source), []).append(("", source))

    def _on_gap(self, line: Line) -> None:
        """Note what is gone. A recreated topic uses the positions of its predecessor again."""
        last = "" if line["last"] is None else line["last"]
        self._gaps.append(f"{line['topic']}/{line['partition']}/{line['first']}-{last}")
        if line["cause"] == "recreated":
            self._forget_predecessor(f"{line['topic']}/{line['partition']}/")

    def _forget_predecessor(self, prefix: str) -> None:
        """The messages so far whose source has this prefix came from a topic that is gone."""
        for queue, lifecycle in self._lifecycles.items():
            self._former.add(queue, lifecycle.last_sequence, prefix)
            for sequence, (message_id, source) in lifecycle.open.items():
                if source.startswith(prefix):
                    lifecycle.open[sequence] = (message_id, "")
        for known in (self._queue_of, self._outcomes, self._unexplained):
            for source in [each for each in known if each.startswith(prefix)]:
                del known[source]
        self._copies.forget(prefix)

    def _is_known(self, source: str) -> bool:
        """Whether the input topics have the record, or had it before it was deleted."""
        return source in self._digests or self._is_gone(source)

    def _is_gone(self, source: str) -> bool:
        if not self._begins or source.count("/") < 2:
            return False
        topic, partition, offset = source.rsplit("/", 2)
        return int(offset) < self._begins.get((topic, int(partition)), 0)

    def _check_state(self, line: Line, *states: str) -> tuple[QueueLifecycles, int]:
        """Return the queue's lifecycles; a fault unless it holds the message in such a state."""
        queue, sequence = line["queue"], line["sequence"]
        lifecycle = self._lifecycle(queue)
        if sequence not in lifecycle.open:
            text = f"{describe(queue, sequence)} was {line['event']} while not in the queue"
            self._fault(text, queue)
        elif (state := lifecycle.state(sequence)) not in states:
            self._fault(f"{describe(queue, sequence)} was {line['event']} while {state}", queue)
        return lifecycle, sequence

    def _leave(self, line: Line, *states: str) -> str:
        """Remove the message from its queue, and return its source."""
        lifecycle, sequence = self._check_state(line, *states)
        lifecycle.delivering.pop(sequence, None)
        lifecycle.scheduled.discard(sequence)
        return lifecycle.open.pop(sequence, ("", ""))[1]

    # --- helpers ---------------------------------------------------------------------------------

    def _account(self, queue: str) -> QueueAccount:
        account = self._accounts.get(queue)
        if account is None:
            account = self._accounts[queue] = QueueAccount(queue)
        return account

    def _lifecycle(self, queue: str) -> QueueLifecycles:
        lifecycle = self._lifecycles.get(queue)
        if lifecycle is None:
            lifecycle = self._lifecycles[queue] = QueueLifecycles()
        return lifecycle

    def _fault(self, text: str, queue: str = "") -> None:
        self._faults.append(text)
        if queue:
            self._account(queue).faults += 1

    def _source(self, by: str) -> str:
        """Return the producer's record that an event is about, before any repartitioning."""
        return self._repartitioned.get(by, by)

    def _explain(self, source: str) -> None:
        """Note that a record sent to an address was processed."""
        if self._is_known(source):
            self._copies.explain(source)
        else:
            self._unexplained[source] = None

    def _refused(self, source: str, queue: str) -> None:
        """Note a refused send. An event reports it, and some have a dead record as well."""
        if address_of(queue):
            self._explain(source)
        elif self._outcomes.get(source) != "refused":
            self._record_outcome(source, "refused", "")

    def _record_outcome(self, source: str, outcome: str, queue: str) -> None:
        """Note the outcome of a record."""
        if not self._is_known(source):
            if source:
                self._unexplained[source] = None
        elif address_of(queue):
            self._copies.end(source, queue)
        elif source in self._outcomes:
            self._duplicated[source] = None
            if queue:
                self._account(queue).faults += 1
        else:
            self._outcomes[source] = outcome

    def _compare(self, source: str, record: InRecord) -> None:
        digest = self._digests.get(source)
        if digest is None:
            if not self._is_gone(source):
                self._unexplained[source] = None
        elif digest != hash((record.key, record.value, self._theirs(record))):
            self._altered[source] = None

    @staticmethod
    def _theirs(output: InRecord) -> tuple[tuple[str, bytes], ...]:
        return producer_headers(without_attributes(output.headers))

    def _expect_record(self, role: str, key: Key) -> None:
        self._expected.setdefault((role, self._partition), []).append(key)

    def _list(
        self, lists: dict[tuple[str, int], list[Key]], role: str, records: Sequence[InRecord]
    ) -> list[Key]:
        return lists.setdefault((role, records[0].partition), []) if records else []

    @staticmethod
    def _topic(source: str) -> str:
        return source.rsplit("/", 2)[0]

    # --- the result ------------------------------------------------------------------------------

    def proof(self, held: Mapping[str, Mapping[str, Any]] | None = None) -> Proof:
        """Return the result for everything that was taken. Call it once.

        Args:
            held: by queue, the `answer` of the `list` command; None takes what the queues hold from
                the events.
        """
        for role, partition in sorted(self._expected.keys() | self._found.keys()):
            self._compare_partition(role, partition)
        for queue in sorted(self._lifecycles.keys() | (held or {}).keys()):
            listed = self._from_events(queue) if held is None else held.get(queue)
            self._compare_held(queue, listed)
        for source in self._open_xids.left():
            self._record_outcome(source, "pending", "")
        missing = self._missing()
        outcomes = Counter(self._outcomes.values())
        return Proof(
            accounts=dict(sorted(self._accounts.items())),
            inputs=len(self._digests),
            undecodable=outcomes["unreadable"],
            refused=outcomes["refused"],
            rolled_back=outcomes["rolled_back"],
            pending=outcomes["pending"],
            missing=missing,
            duplicated=list(self._duplicated),
            altered=list(self._altered),
            unexplained=list(self._unexplained),
            gaps=self._gaps,
            faults=self._faults,
        )

    def _missing(self) -> list[str]:
        """Return the records without an outcome, and those of which a copy has none."""
        known = self._outcomes.keys()
        missing = {s: None for s in self._digests if s not in known and s not in self._copies}
        for source in missing:
            if queue := self._queue_of.get(source, ""):
                self._account(queue).faults += 1
        for source, queue, count in self._copies.unsettled():
            (missing if count > 0 else self._duplicated)[source] = None
            self._account(queue).faults += 1
        return list(missing)

    def _compare_partition(self, role: str, partition: int) -> None:
        """Compare the records of an output partition with the events, including their order."""
        expected = self._expected.get((role, partition), [])
        found = self._found.get((role, partition), [])
        if expected == found:
            return
        where = f"topic {role}, partition {partition}"
        by_events, by_records = Counter(expected), Counter(found)
        if by_events == by_records:
            self._fault(f"{where}: the records are not in the order of the events")
        for key in by_events.keys() | by_records.keys():
            if by_events[key] != by_records[key]:
                name = describe(*key) if key[0] else f"the undecodable record {key[1]}"
                text = f"{where}: {by_records[key]} records of {name}, but {by_events[key]} events"
                self._fault(text, key[0])

    def _from_events(self, queue: str) -> dict[str, Any]:
        lifecycle = self._lifecycle(queue)
        by_state: dict[str, list[str]] = {state: [] for state in STATES}
        for sequence, (message_id, _) in lifecycle.open.items():
            by_state[lifecycle.state(sequence)].append(message_id)
        return {**by_state, "delivering": {"": by_state["delivering"]}}

    def _compare_held(self, queue: str, listed: Mapping[str, Any] | None) -> None:
        """Compare what a queue says it holds with its events. To be held is an outcome, too."""
        lifecycle, account = self._lifecycle(queue), self._account(queue)
        by_name: dict[tuple[str, str], list[str]] = {}
        for sequence, (message_id, source) in lifecycle.open.items():
            by_name.setdefault((lifecycle.state(sequence), message_id), []).append(source)
        if listed is None:
            if lifecycle.open:
                text = f"queue {queue} holds {len(lifecycle.open):,} messages but was not listed"
                self._fault(text, queue)
            return
        for state in STATES:
            ids = ids_of(listed[state])
            setattr(account, state, len(ids))
            counted = listed.get("counts", {}).get(state, len(ids))
            if counted != len(ids):
                text = f"queue {queue}: counts {counted:,} as {state} but lists {len(ids):,}"
                self._fault(text, queue)
            for message_id in ids:
                sources = by_name.get((state, message_id))
                if sources:
                    self._record_outcome(sources.pop(), state, queue)
                else:
                    self._fault(f"queue {queue} lists {message_id} as {state}, wrongly", queue)
        for (state, message_id), sources in by_name.items():
            if sources:
                self._fault(f"queue {queue} does not list {message_id}, which is {state}", queue)
