"""The Spark audit on small histories: a correct one balances, each fault is reported exactly."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from ringfaust.config import QueuesConfig
from ringfaust.core.model import HELD_STATES
from ringfaust.protocol import headers as h
from ringfaust.protocol.gaps import Gap, GapCause, gap_line
from ringfaust.protocol.lifecycle import EXIT_EVENTS
from ringfaust.protocol.records import Role
from ringfaust.spark.audit import show
from ringfaust.spark.audit.accounts import COUNTS
from ringfaust.spark.audit.offsets import CannotAudit, require_whole
from ringfaust.spark.audit.show import json_lines, print_verdict
from ringfaust.spark.audit.verdict import Verdict
from tests.spark.audit_history import audit
from tests.testing.test_accounts import History, history

__all__ = ["history"]


def named(verdict: Verdict) -> set[tuple[Any, ...]]:
    fields = ("kind", "queue", "sequence", "source")
    return {tuple(row[name] for name in fields) for row in verdict.findings.collect()}


def json_report(verdict: Verdict) -> list[dict[str, Any]]:
    return [json.loads(line) for line in json_lines(verdict, 1.0)]


def printed(verdict: Verdict, width: int = 200) -> str:
    out = io.StringIO()
    print_verdict(Console(file=out, width=width), verdict, 1.0)
    return out.getvalue()


def omit_payload(history: History, number: int) -> None:
    """Strip an evicted record of its key, value and the producer's headers."""
    record = history.topics[Role.EVICTED][number]
    ours = tuple(pair for pair in record.headers if pair[0].startswith(h.PREFIX))
    history.change(Role.EVICTED, number, key=None, value=None, headers=ours)


def test_brackets_in_names_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = "a\\[/b][c]"
    rows = [{"queue": queue, "balanced": True, **dict.fromkeys(COUNTS, 1)}]
    monkeypatch.setattr(show, "top_queues", lambda _: rows)
    verdict: Any = SimpleNamespace(totals={**rows[0], "queues": 1})
    out = io.StringIO()
    Console(file=out, width=200).print(show._table(verdict, 200))
    assert queue in out.getvalue()


def test_a_correct_history_balances(spark: SparkSession, history: History) -> None:
    history.put("in", b"a", b"not read yet", ())
    verdict = audit(spark, history, window="1 second")
    assert named(verdict) == set()
    assert verdict.balanced
    assert (verdict.inputs, verdict.waiting, verdict.repeats) == (16, 1, 0)
    assert verdict.lines == 44
    lines = json_report(verdict)
    assert [line["type"] for line in lines] == ["verdict", *["queue"] * 3, *["window"] * 3]
    proof = history.proof()
    for line in lines[1:4]:
        row = proof.accounts[line["queue"]]
        proved = row.counts.as_dict() | {"faults": row.faults, "balanced": row.balanced}
        assert line.items() >= {name: proved[name] for name in proved if name in line}.items()
        assert {*EXIT_EVENTS, *HELD_STATES, "added", "faults", "balanced"} <= line.keys()
    b = lines[5]
    assert (b["queue"], b["opening"], b["added"], b["closing"]) == ("q.b", 0, 6, 3)
    assert (b["dispatched"], b["returned"], b["dead"]) == (7, 2, 2)
    text = printed(verdict)
    assert "15 messages accounted for: 0 missing, 0 doubled, 0 altered." in text
    assert "1 records in the producers' topics have not been read" in text
    for name in ("expired", "moved out", "scheduled"):
        assert name in text
    heading, *rows = printed(verdict, width=80).splitlines()[:5]
    assert heading.split() == [*"queue added acked evicted other exits held balanced".split()]
    assert [row.split() for row in rows] == [
        ["q.a", "4", "0", "2", "0", "2", "yes"],
        ["q.b", "6", "1", "0", "2", "3", "yes"],
        ["q.c", "4", "0", "0", "3", "1", "yes"],
        ["all", "14", "1", "2", "5", "6", "yes"],
    ]


def test_each_fault_is_reported_and_nothing_else(spark: SparkSession, history: History) -> None:
    # A delivery without an event: its record has no cause, its ack has no delivery to end.
    history.change_line("dispatched", lambda line: line.update(event="none"))
    history.drop(Role.EVICTED, 1)
    history.double(Role.DEAD, 0)
    lost = history.topics[Role.DISPATCHED][-1]
    ours = tuple(pair for pair in lost.headers if pair[0] != "colour")
    history.change(Role.DISPATCHED, -1, headers=ours)
    last = history.topics[Role.EVENTS][-1]
    held = {"event": "evicted", "queue": "q.b", "sequence": 4, "reason": "overflow", "step": 99,
            "id": "in/0/7", "by": "tick", "time_ms": 2_000}  # fmt: skip
    history.topics[Role.EVENTS].append(last._replace(value=json.dumps(held).encode()))
    record = history.topics[Role.EVICTED][0]
    nowhere = tuple(
        (name, {h.SOURCE: b"in/0/99", h.SEQUENCE: b"77"}.get(name, value))
        for name, value in record.headers
    )
    history.topics[Role.EVICTED].append(record._replace(headers=nowhere))
    omit_payload(history, 0)  # though no setting of its queue allows it
    history.change(Role.EVENTS, 0, value=b'{"event":"add\n' + (
        history.topics[Role.EVENTS][0].value or b""
    ))  # fmt: skip
    verdict = audit(spark, history)
    dead = dict(history.topics[Role.DEAD][0].headers)
    assert named(verdict) == {
        ("missing", "q.a", 2, "in/0/1"),
        (
            "doubled", dead[h.QUEUE].decode(), int(dead[h.SEQUENCE]), dead[h.SOURCE].decode(),
        ),
        ("altered", "q.b", 6, "in/0/14"),
        ("altered", "q.a", 1, "in/0/0"),
        ("unexplained", "q.b", 1, "in/0/4"),
        ("evicted_while_held", "q.b", 4, "in/0/7"),
        ("unexplained", "q.a", 77, "in/0/99"),
        ("damaged", None, None, None),
    }  # fmt: skip
    assert not verdict.balanced
    lines = json_report(verdict)
    assert lines[0]["balanced"] is False
    findings = [line for line in lines if line["type"] == "finding"]
    assert [line["kind"] for line in findings][0] == "evicted_while_held"
    (missing,) = [line for line in findings if line["kind"] == "missing"]
    assert "is missing from app.evicted/0" in missing["text"]
    altered = {line["record"] for line in findings if line["kind"] == "altered"}
    assert altered == {"app.dispatched/0/6", "app.evicted/0/0"}
    text = printed(verdict)
    assert "The accounts do not balance: 1 evicted while a consumer held it" in text
    assert "missing: message 2 of q.a, source in/0/1" in text


def lose_inputs(history: History) -> str:
    """Gaps, also one that a repartition task has reported, whose line has no step (R112)."""
    begin = len(history.topics["in"])
    history.skip(Gap("in", 0, begin, begin + 4, GapCause.DELETED))
    del history.topics["in"][begin:]
    line = gap_line(Gap("other", 1, 7, None, GapCause.RECREATED), 1, 0, 9_000)
    history.put(Role.EVENTS, None, line.encode(), ())
    return f"in/0/{begin}-{begin + 4}"


def test_gaps_copies_recreated_queues_moves_and_short_evictions_are_no_faults(
    spark: SparkSession, history: History
) -> None:
    history.ask("create_queue", "other", settings={})
    history.ask("configure", "q.a", settings={})
    for number in range(5):
        history.send("a", b"evicted and moved %d" % number)
    last = f"in/0/{len(history.topics['in']) - 1}"
    history.ask("move", "q.a", message=last, to="other")
    history.ask("delete_queue", "q.a")
    for _ in range(4):
        history.send("a", b"recreated")
    history.ask("list", "q.a")
    history.ask("configure", "q.d", settings={"evicted_payload": "reference"})
    for _ in range(3):
        history.send("d", b"by its key alone")
    by_key = [record for record in history.topics[Role.EVICTED] if record.key == b"d"]
    assert [record.value for record in by_key] == [None]
    short = QueuesConfig.model_validate(
        {"queues": {"q.*": {"evicted_payload": "none"}},
         "routes": [{"topic": "in", "queue": "q.{key}"}]}
    )  # fmt: skip
    omit_payload(history, 0)
    gap = lose_inputs(history)
    events = history.topics[Role.EVENTS]
    lines = sum(len((record.value or b"").split(b"\n")) for record in events)
    for role in (Role.EVENTS, Role.DISPATCHED, Role.EVICTED, Role.DEAD):
        records = history.topics[role]
        # A prefix of a micro-batch, then all of it again.
        records[:] = [*records[:-2], records[-2], *records[-2:]]
    verdict = audit(spark, history, earlier=(short,), repeats_are_faults=False)
    assert named(verdict) == set()
    assert verdict.balanced
    assert (verdict.totals["added"], verdict.totals["moved_out"]) == (14 + 13, 1 + 1)
    assert (verdict.repeats, verdict.lines) == (4, lines)
    assert verdict.gaps == [gap, "other/1/7-"]
    assert json_report(verdict)[0]["gaps"] == verdict.gaps
    text = printed(verdict)
    assert "4 records are exact copies of earlier ones" in text
    assert f"{gap}, other/1/7-." in text


def test_topics_cut_by_retention_cannot_be_audited() -> None:
    found = {("app.events", 0): (0, 9), ("app.events", 1): (5, 9), ("in", 0): (3, 9)}
    require_whole(found, ["app.evicted"])
    with pytest.raises(CannotAudit, match="partition 1, begins at offset 5.*--lake"):
        require_whole(found, ["app.events"])
