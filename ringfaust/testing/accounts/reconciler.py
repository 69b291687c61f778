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
from ringfaust.core.model import HELD_STATES
from ringfaust.protocol import headers as h
from ringfaust.protocol.cloud_events import is_undecodable, without_attributes
from ringfaust.protocol.lifecycle import EVENTS, Line
from ringfaust.protocol.records import InRecord, place_of
from ringfaust.testing.accounts.event_accounts import (
    EventAccounts,
    HeldMessage,
    change_count,
    describe,
    ids_by_state,
)
from ringfaust.testing.accounts.outcomes import (
    AddressCopies,
    FormerMessages,
    OpenXids,
    ids_of,
    producer_headers,
    undecodable_list,
)
from ringfaust.testing.accounts.proof import Proof, QueueAccount

Key = tuple[Any, ...]
Headers = Mapping[str, bytes]


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
        self._events = EventAccounts(self._fault)
        self._accounts: dict[str, QueueAccount] = {}
        self._expected: dict[tuple[str, int], list[Key]] = {}
        self._found: dict[tuple[str, int], list[Key]] = {}
        self._duplicated: dict[str, None] = {}
        self._altered: dict[str, None] = {}
        self._unexplained: dict[str, None] = {}
        self._faults: list[str] = []
        self._partition = 0
        self._message: HeldMessage | None = None
        """The message that the present line is about."""
        self._on: dict[str, Callable[[Line], None]] = {
            "added": self._on_added,
            "scheduled": self._on_added,
            "acked": self._on_outcome,
            "lost": self._on_outcome,
            "unrouted": self._on_unrouted,
            "pending": self._on_pending,
            "decided": self._on_decided,
            "removed": self._on_outcome,
            "moved_out": self._on_moved_out,
            "refused": self._on_refused,
            "unreadable": self._on_undecodable,
            "gap": self._on_gap,
        }

    # --- records ---------------------------------------------------------------------------------

    def take_input(self, records: Sequence[InRecord]) -> None:
        """Take records of an input topic."""
        digests = self._digests
        for record in records:
            source = place_of(record)
            digests[source] = hash((record.key, record.value, producer_headers(record.headers)))

    def take_repartitioned(self, records: Sequence[InRecord]) -> None:
        """Take records of the repartition topic, to find the source of undecodable ones."""
        for record in records:
            source = dict(record.headers).get(h.SOURCE, b"").decode()
            self._repartitioned[place_of(record)] = source

    def take_evicted(self, records: Sequence[InRecord]) -> None:
        """Take records of the evicted topic."""
        found = self._list(self._found, "evicted", records)
        for record in records:
            ours = dict(record.headers)
            queue, source = ours[h.QUEUE].decode(), ours[h.SOURCE].decode()
            found.append((queue, int(ours[h.SEQUENCE])))
            self._account(queue).counts.evicted += 1
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
            change_count(self._account(queue).counts, outcome)
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
                self._message = self._events.take(record.partition, line)
                self._expect(line)
                take = self._on.get(line["event"])
                if take is not None:
                    take(line)

    # --- events ----------------------------------------------------------------------------------

    def _expect(self, line: Line) -> None:
        """Note that an output topic must have a record of the event."""
        event = EVENTS.get(line["event"])
        if event is not None and event.record:
            key: Key = (line["queue"], line["sequence"])
            if event.record == "dispatched":
                key += (line["delivery"], line["consumer"])
            self._expected.setdefault((event.record, self._partition), []).append(key)

    def _on_added(self, line: Line) -> None:
        queue, source = line["queue"], line["source"]
        self._account(queue).counts.added += 1
        if not self._is_known(source):
            self._unexplained[source] = None
        elif address_of(queue):
            self._copies.add(source, queue)
            return
        elif source in self._queue_of:
            self._duplicated[source] = None
        self._queue_of[source] = queue

    def _on_outcome(self, line: Line) -> None:
        """Note an outcome of which no output topic has a record."""
        queue, outcome = line["queue"], line["event"]
        change_count(self._account(queue).counts, outcome)
        self._record_outcome(self._message_source(), outcome, queue)

    def _message_source(self) -> str:
        return self._message.source if self._message is not None else ""

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

    def _on_moved_out(self, line: Line) -> None:
        source = self._message_source()
        self._account(line["queue"]).counts.moved_out += 1
        if address_of(line["queue"]):
            self._copies.end(source, line["queue"])
        else:
            self._queue_of.pop(source, None)  # the other queue reports its outcome

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
        for name, queue in self._events.queues.items():
            self._former.add(name, queue.last_sequence, prefix)
            for message in queue.held.values():
                if message.source.startswith(prefix):
                    message.source = ""
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

    # --- helpers ---------------------------------------------------------------------------------

    def _account(self, queue: str) -> QueueAccount:
        account = self._accounts.get(queue)
        if account is None:
            account = self._accounts[queue] = QueueAccount(queue)
        return account

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
        else:
            headers = producer_headers(without_attributes(record.headers))
            if digest != hash((record.key, record.value, headers)):
                self._altered[source] = None

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
        for queue in sorted(self._events.queues.keys() | (held or {}).keys()):
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
        by_state = ids_by_state(self._events.queue(queue).held.values())
        return {**by_state, "delivering": {"": by_state["delivering"]}}

    def _compare_held(self, queue: str, listed: Mapping[str, Any] | None) -> None:
        """Compare what a queue says it holds with its events. To be held is an outcome, too."""
        messages, account = self._events.queue(queue).held, self._account(queue)
        by_name: dict[tuple[str, str], list[str]] = {}
        for message in messages.values():
            by_name.setdefault((message.state, message.id), []).append(message.source)
        if listed is None:
            if messages:
                text = f"queue {queue} holds {len(messages):,} messages but was not listed"
                self._fault(text, queue)
            return
        for state in HELD_STATES:
            ids = ids_of(listed[state])
            setattr(account.counts, state, len(ids))
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
        for (was, message_id), sources in by_name.items():
            if sources:
                self._fault(f"queue {queue} does not list {message_id}, which is {was}", queue)
