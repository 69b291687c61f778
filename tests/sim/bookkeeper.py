"""The independent bookkeeper: it reads nothing but the virtual topics, as any consumer could."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ringfaust.core.limits import UNHEARD_RECHECK_MS
from ringfaust.core.table import Kind
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import FetchedRecord
from ringfaust.protocol.stored_rows import POSITIONS_KEY, read_positions
from ringfaust.testing.accounts.event_accounts import EventAccounts
from tests.sim.broker import Broker, Log
from tests.sim.causes import OF_SENDS, Causes
from tests.sim.order_book import ORDER, ORDER_MARKS
from tests.sim.partition_book import PartitionBook
from tests.sim.plan import ADDRESS, KEEPER, PARTITIONS, Plan
from tests.sim.queue_book import Line, Message, demand
from tests.sim.replay import changelog
from tests.sim.sends import Send

_OF_TIME = ("tick", "start")
_SILENT = (b'"list"', *ORDER_MARKS)
"""Commands without an event."""
_INPUTS = ("control", "hop", "keyed", "timed")


class Bookkeeper:
    """Reads the topics and checks them against the contract."""

    def __init__(self, broker: Broker, plan: Plan) -> None:
        self._partitions = [_Reader(broker, plan, number) for number in range(PARTITIONS)]
        self._broker = broker
        self._plan = plan

    def read(self, when: str, *, is_kept: bool) -> None:
        """Read and check everything new.

        Args:
            when: which answers to `list` to check.
            is_kept: whether the keeper has sent heartbeats until now.
        """
        for partition in self._partitions:
            partition.read(is_kept=is_kept)
            if when == "later" and not self._plan.as_artemis:
                partition.check_silence()
            if not self._plan.as_artemis:
                partition.check_outputs()
                partition.check_lists(when)
            partition.check_inputs()
        self._check_hop()

    def check_group(self) -> None:
        """After an orderly stop, offsets of the group and level are what they must be."""
        for partition in self._partitions:
            partition.check_group()
            if not self._plan.as_artemis:
                partition.check_level()

    @property
    def events(self) -> Counter[str]:
        """How often each event occurred, by name and reason."""
        return sum((partition.events for partition in self._partitions), Counter())

    def _check_hop(self) -> None:
        """Every record of a repartitioned topic was forwarded once, or reported as undecodable."""
        sources: dict[str, int] = {}
        for number in range(PARTITIONS):
            for record in self._broker.log("hop", number).records():
                source = _said(record)["source"]
                sources[source] = sources.get(source, 0) + 1
            for source in self._partitions[number].undecodable_before_hop:
                sources[source] = sources.get(source, 0) + 1
        for number in range(self._plan.far_partitions):
            log = self._broker.log("far", number)
            at = self._broker.offsets.get(("far", number), 0)
            for record in log.records():
                count = sources.pop(f"far/{number}/{record.offset}", 0)
                demand(count == (record.offset < at), "forwarded", count, "times:", record)
            demand(at >= log.end or not log.read(at, 1)[0], "the repartition task is stuck")
        demand(not sources, "forwarded, but not in the topic:", sources)


class _Reader:
    """Reads the topics of one partition."""

    def __init__(self, broker: Broker, plan: Plan, number: int) -> None:
        self._broker = broker
        self._number = number
        self._at: dict[str, int] = {}
        self._done: dict[str, int] = {}
        """By topic: the last offset that had an effect."""
        self._seen: set[str] = set()
        self._gone: set[str] = set()
        """Positions that a gap reports."""
        self._recreated: set[str] = set()
        """Topics of which the events have said that they were created again."""
        self._changing: set[str] = set()
        """Topics of which the events say so at last."""
        self._accounts = EventAccounts(lambda text, queue: demand(False, text))
        self._book = PartitionBook(plan)
        self._causes = Causes(self._book)
        self._step = 0
        self._replies: list[tuple[str, str]] = []
        self._lists: dict[str, dict[str, Any]] = {}
        self.undecodable_before_hop: list[str] = []
        self.events: Counter[str] = Counter()

    def _new(self, topic: str) -> list[FetchedRecord]:
        found, self._at[topic] = self._broker.log(topic, self._number).read(
            self._at.get(topic, 0), 1_000_000
        )
        return found

    def _record(self, by: str) -> FetchedRecord:
        topic, partition, offset = by.split("/")
        demand(
            topic in _INPUTS and int(partition) == self._number,
            "this record belongs elsewhere:",
            by,
        )
        record = self._log(topic).at(int(offset))
        demand(record is not None, "no committed record at", by)
        assert record is not None
        return record

    # --- events ----------------------------------------------------------------------------------

    def check_silence(self) -> None:
        """Long after everybody has fallen silent, nobody is attached who times out (R13, R110)."""
        for queue in self._book.queues.values():
            queue.check_silence(self._broker.now_ms - 3 * UNHEARD_RECHECK_MS)
        for known in self._book.xids.values():
            is_open = known["until_ms"] > self._broker.now_ms - 3 * UNHEARD_RECHECK_MS
            demand(is_open or known["prepared"], "open for too long:", known)

    def read(self, *, is_kept: bool) -> None:
        lines: list[Line] = []
        for record in self._new("events"):
            assert record.value is not None
            lines += map(json.loads, record.value.decode().split("\n"))
        self._changing |= {line["topic"] for line in lines if line.get("cause") == "recreated"}
        for line in lines:
            is_silent = line["event"] == "detached" and line["timeout"]
            demand(
                not (is_kept and is_silent and line["consumer"] == KEEPER), "it was alive:", line
            )
            self.events[f"{line['event']} {line.get('reason', '')}".strip()] += 1
            self._accounts.take(self._number, line)
        for group in groups_of(lines):
            self._read_group(group[0]["by"], group)

    def _read_group(self, by: str, lines: list[Line]) -> None:
        while lines[0]["event"] == "gap":  # the first record behind it may have its position
            self._read_gap(lines.pop(0))
            if not lines:
                return
        if lines[0]["event"] == "unreadable":
            self._read_unreadable(by, lines)
            return
        now_ms = lines[0]["time_ms"]
        demand(now_ms >= self._book.now_ms, "time went back:", lines[0])
        demand(lines[0]["step"] >= self._step, "the step went back:", lines[0])
        self._book.now_ms, self._step = now_ms, lines[0]["step"]
        if by in _OF_TIME:
            if not self._book.plan.as_artemis:
                self._causes.judge(by, lines)
            return
        record = self._record(by)
        self._note(by, record)
        if self._book.plan.as_artemis:
            return
        if record.topic == "control":
            command = json.loads(record.value or b"")
            demand(
                lines[-1]["event"] in ("done", "refused"),
                "neither done nor refused at the end:",
                lines,
            )
            self._causes.judge(command, lines)
            self._expect_replies(command, lines)
        else:
            send = _send(record, by, now_ms)
            sent_by = int(send.said.get("revision", 0))
            demand(sent_by <= self._book.applied[0], "its route is not in use yet:", record)
            is_fed = record.topic in ("hop", *self._book.topics)
            demand(is_fed, "its route is not in use any more:", record)
            self._causes.judge(send, lines)
            for line in lines:
                if line["event"] == "refused":
                    is_of_queue = line["reason"] in ("queue_full", "too_large")
                    about = line["about"] if is_of_queue else send.id
                    self._replies.append((about, line["reason"]))

    def _read_gap(self, line: Line) -> None:
        """Nothing that is missing has taken effect, and everything before it has."""
        topic, first, last = line["topic"], line["first"], line["last"]
        demand(first > self._done.get(topic, -1), "a gap of what was processed:", line)
        prefix = f"{topic}/{self._number}/"
        if line["cause"] == "recreated":
            demand(topic not in self._recreated, topic, "was not created again twice")
            self._recreated.add(topic)
            self._seen = {by for by in self._seen if not by.startswith(prefix)}
            self._gone = {by for by in self._gone if not by.startswith(prefix)}
            self._done.pop(topic, None)
        else:
            demand(line["cause"] == "deleted", "no log has lost its end:", line)
            self._gone |= {f"{prefix}{offset}" for offset in range(first, last + 1)}

    def _log(self, topic: str) -> Log:
        """The log of the topic that the events are about now."""
        is_former = topic in self._changing and topic not in self._recreated
        return (self._broker.former if is_former else self._broker.log)(topic, self._number)

    def _read_unreadable(self, by: str, lines: list[Line]) -> None:
        demand(len(lines) == 1, "reported more than once:", lines)
        self._book.outputs["dead"].append(("", lines[0].get("source", by), lines[0]["reason"]))
        if by.startswith("far/"):
            self.undecodable_before_hop.append(by)
            return
        record = self._record(by)
        self._note(by, record)
        if record.topic == "control" and b'"reply"' in (record.value or b""):
            reply = json.loads(record.value or b"")["reply"]
            if not reply.startswith((ORDER, "list", "now/", "later/")):  # looked at elsewhere
                self._replies.append((reply, "bad_command"))

    def _note(self, by: str, record: FetchedRecord) -> None:
        """A record took effect: once, and in its topic's order."""
        demand(by not in self._seen, by, "took effect twice")
        self._seen.add(by)
        demand(
            record.offset > self._done.get(record.topic, -1), by, "took effect after a later record"
        )
        self._done[record.topic] = record.offset

    def _expect_replies(self, command: dict[str, Any], lines: list[Line]) -> None:
        """A reply for each send that it made and that was refused, then its own (R62)."""
        for line in lines[:-1]:
            if line["event"] == "refused":
                is_ack = command["type"] == "ack_many" and line["reason"] not in OF_SENDS
                if not is_ack:
                    self._replies.append((line["about"], line["reason"]))
                elif "reply" in command:
                    self._replies.append((command["reply"], line["reason"]))
        refused = lines[-1]["reason"] if lines[-1]["event"] == "refused" else "ok"
        if reply := command.get("reply"):
            self._replies.append((reply, refused))

    # --- inputs ----------------------------------------------------------------------------------

    def check_inputs(self) -> None:
        """Every record that was read took effect; others wait for a queue that is not pulled."""
        positions = self._positions()
        for topic in _INPUTS:
            log = self._broker.log(topic, self._number)
            at = positions.get(topic, 0)
            demand(self._broker.offsets.get((topic, self._number), 0) <= at, "a group ahead of", at)
            for record in log.records():
                by = f"{topic}/{self._number}/{record.offset}"
                if topic == "control" and any(word in (record.value or b"") for word in _SILENT):
                    continue
                if by in self._gone:
                    demand(by not in self._seen, by, "is missing, but took effect")
                    continue
                demand((by in self._seen) == (record.offset < at), "read up to", at, "but", by)
            waiting = log.read(at, 1)[0]
            if waiting and not self._book.plan.as_artemis:
                self._check_waits(waiting[0])

    def _positions(self) -> dict[str, int]:
        """The positions in the state. Those of the group may lag."""
        return read_positions(changelog(self._broker, self._number).get(POSITIONS_KEY))

    def check_group(self) -> None:
        """After an orderly stop, the group's offsets are the positions."""
        positions = self._positions()
        for topic in _INPUTS:
            at = self._broker.offsets.get((topic, self._number), 0)
            demand(at == positions.get(topic, 0), "the group's offset of", topic, "is", at)

    def check_level(self) -> None:
        """The partition uses the level that it was raised to (R129)."""
        store = MemoryKeyValue()
        store.apply(changelog(self._broker, self._number).items())
        found = [clock.level for _, clock in ByteStore(store).scan(Kind.CLOCK, "", 0, None, 1)]
        demand((found or [1]) == [self._book.level], "the level is", found, "not", self._book.level)

    def _check_waits(self, record: FetchedRecord) -> None:
        send = _send(record, "", 0)
        names = self._book.members if send.queue == ADDRESS else [send.queue]
        queues = [self._book.queue(name) for name in names]
        stopped = [queue for queue in queues if queue is not None and not queue.accepts_sends()]
        demand(stopped and not send.xid, "had no effect:", record)

    # --- outputs ---------------------------------------------------------------------------------

    def check_outputs(self) -> None:
        """Every other topic has the records that the events announce, once and in order."""
        for topic, check in (
            ("dispatched", _check_dispatched), ("evicted", _check_evicted), ("dead", _check_dead)
        ):  # fmt: skip
            expected, self._book.outputs[topic] = self._book.outputs[topic], []
            records = self._new(topic)
            demand(
                len(records) == len(expected),
                topic, "has", len(records), "records of", len(expected),
            )  # fmt: skip
            if topic == "dead":  # another task writes what it cannot pass on, at the same time
                expected.sort(key=lambda line: _before_hop(*line[1:]))
                records.sort(key=lambda record: _before_hop(*_source_and_reason(record)))
            for record, line in zip(records, expected, strict=True):
                check(self._broker, record, line)
        replies = []
        for record in self._new("replies"):
            key, body = (record.key or b"").decode(), json.loads(record.value or b"")
            if key.startswith(("now/", "later/")):
                self._lists[key] = body
            elif key != "list" and not key.startswith(ORDER):
                replies.append((key, body.get("reason", "ok")))
        demand(replies == self._replies, "replies", replies, "expected", self._replies)
        self._replies = []

    def check_lists(self, when: str) -> None:
        """The queues hold what the events say that they hold."""
        for key, body in self._lists.items():
            asked, _, name = key.partition("/")
            queue = self._book.queue(name)
            if asked != when:
                continue
            if queue is None:
                demand(body.get("reason") == "unknown_queue", name, "does not exist:", body)
                continue
            delivering: dict[str, list[str]] = {}
            for _, held in sorted(queue.held.items()):
                delivering.setdefault(held.consumer, []).append(held.message.id)
            later = sorted(queue.scheduled.values(), key=lambda m: (m.due_ms, m.sequence))
            expected: dict[str, object] = {
                "ready": [message.id for message in queue.in_order()],
                "delivering": delivering,
                "scheduled": [message.id for message in later],
                "counts": self._accounts.queue(name).counts.as_dict(),
                "pulled": queue.accepts_sends(),
            }
            if (
                self._book.plan.has_non_persistent
            ):  # it may have lost some without having been used since
                body["answer"]["pulled"] = expected["pulled"]
            demand(
                expected.items() <= body["answer"].items(),
                name, "holds", body["answer"], "but should hold", expected,
            )  # fmt: skip
            counts = self._accounts.queue(name).counts
            demand(counts.balanced, "accounts:", counts)
            ours = (len(queue.ready), len(queue.held), len(queue.scheduled))
            demand(counts.stored()[:3] == ours, "holds", ours, "but counts", counts)


def groups_of(lines: list[Line]) -> list[list[Line]]:
    """The lines, by cause.

    What a restart finds lost may come within a large command or a sweep (R82), and so may what a
    repartition task reports, which is a group of its own.
    """
    groups: list[list[Line]] = []
    group: list[Line] = [{"step": -1, "by": ""}]
    for line in lines:
        if line["by"].startswith("far/"):
            groups.append([line])
            continue
        first = group[0]
        is_within = line["event"] == "lost" and line["by"] == "start"
        if line["step"] == first["step"] and (line["by"] == first["by"] or is_within):
            group.append(line)
        else:
            group = [line]
            groups.append(group)
    return groups


def _said(record: FetchedRecord) -> dict[str, str]:
    """Headers of ringfaust, by name without prefix."""
    return {
        name.removeprefix("ringfaust-"): value.decode()
        for name, value in record.headers
        if name.startswith("ringfaust-")
    }


def _send(record: FetchedRecord, by: str, now_ms: int) -> Send:
    said = _said(record)
    queue, source, at = (record.key or b"").decode(), by, now_ms
    if record.topic == "timed":
        at = record.timestamp
    elif record.topic == "hop":
        queue, source, at = said["queue"], said["source"], int(said["time-ms"])
    return Send(queue, source, record, said, at)


def _source(broker: Broker, said: dict[str, str], like: FetchedRecord) -> FetchedRecord:
    """The producer's record. If its topic was created again, the one with the same content."""
    topic, partition, offset = said["source"].split("/")
    logs = (broker.log(topic, int(partition)), broker.former(topic, int(partition)))
    found = [record for log in logs if (record := log.at(int(offset))) is not None]
    same = (each for each in found if like.value in (each.value, None) and each.key == like.key)
    return next(same, found[0])


def _check_whole(broker: Broker, record: FetchedRecord, message: Message) -> None:
    """The producer's key, value and headers are passed on byte for byte."""
    source = _source(broker, _said(record), record)
    demand((record.key, record.value) == (source.key, source.value), "altered:", record, source)
    mine = [pair for pair in source.headers if not pair[0].startswith("ringfaust-")]
    theirs = [pair for pair in record.headers if not pair[0].startswith("ringfaust-")]
    demand(mine == theirs, "altered headers:", record, source)
    said = _said(record)
    wanted = (message.id, message.source, message.priority, message.sequence)
    found = (said["id"], said["source"], int(said["priority"]), int(said["sequence"]))
    demand(found == wanted, "it should be", wanted, "but the record has", found)


def _check_dispatched(broker: Broker, record: FetchedRecord, expected: tuple[Any, ...]) -> None:
    queue, message, consumer, delivery, attempt, is_again = expected
    said = _said(record)
    _check_whole(broker, record, message)
    found = (
        said["queue"], said["consumer"], int(said["delivery"]), int(said["attempt"]),
        said.get("redelivered") == "1",
    )  # fmt: skip
    wanted = (queue, consumer, delivery, attempt, is_again)
    demand(found == wanted, "dispatched must be", wanted, "but is", found)


def _check_evicted(broker: Broker, record: FetchedRecord, expected: tuple[Any, ...]) -> None:
    queue, message, reason, cause, form = expected
    said = _said(record)
    found = (said["queue"], said["id"], int(said["sequence"]), said["reason"], said["cause"])
    wanted = (queue, message.id, message.sequence, reason, cause)
    demand(found == wanted, "evicted must be", wanted, "but is", found)
    if form == "full":
        _check_whole(broker, record, message)
    else:
        key = _source(broker, said, record).key if form == "reference" else None
        demand((record.key, record.value) == (key, None), form, "but the record is", record)


def _source_and_reason(record: FetchedRecord) -> tuple[str, str]:
    said = _said(record)
    return said["source"], said["reason"]


def _before_hop(source: Any, reason: str) -> str:
    """The place of a record that is no message and may have died before the hop; empty: none."""
    return source if reason in ("skipped", "undecodable") and source.startswith("far/") else ""


def _check_dead(broker: Broker, record: FetchedRecord, expected: tuple[Any, ...]) -> None:
    queue, message, reason = expected
    said = _said(record)
    found = (said.get("queue", ""), said["reason"])
    if not queue:  # undecodable: the record is unchanged
        demand((said["source"], said["reason"]) == (message, reason), expected, "but is", record)
    elif isinstance(message, str):  # refused: never in the queue
        demand((*found, said["id"]) == (queue, reason, message), expected, "but is", record)
    else:
        demand(found == (queue, reason), expected, "but is", record)
        if message.persistent:
            _check_whole(broker, record, message)
