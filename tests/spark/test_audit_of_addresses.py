"""The audit of records with several outcomes, or none yet: addresses, limits, transactions."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ringfaust.config import QueuesConfig
from ringfaust.protocol.records import Role
from tests.spark.audit_history import audit
from tests.spark.test_audit import json_report, named
from tests.testing.test_accounts import History
from tests.testing.test_accounts_of_addresses import CATALOG, send_repeats_in_a_transaction

QUEUES = QueuesConfig.model_validate(
    {
        "routes": [{"topic": "in", "queue": "q.{key}"}],
        "queues": {"q.*": {}},
        "addresses": {"q.all": None, "q.nobody": None},
    }
)


def busy_history() -> History:
    """Copies, some refused; an address without queues; repeats; all kinds of transactions."""
    history = History(CATALOG)
    for key in ("all", "all", "all", "a", "a", "nobody"):
        history.send(key, b"x")
    history.ask("create_queue", "q.all::late", settings={"max_messages": -1})
    for key in ("once", "once", "all", "all"):
        history.send(key, b"x", id="m")
    send_repeats_in_a_transaction(history)
    for xid, decision in {"yes": "commit", "no": "rollback_xid", "open": ""}.items():
        history.say("begin", xid=xid, owner="me")
        for key in ("b", "all", "a"):
            history.send(key, b"x", xid=xid, xid_owner="me")
        if decision:
            history.say("prepare", xid=xid)
            history.say(decision, xid=xid)
    return history


def test_copies_and_transactions_balance(spark: SparkSession) -> None:
    history = busy_history()
    verdict = audit(spark, history, queues=QUEUES, window="1 second")
    assert named(verdict) == set()
    assert verdict.balanced
    proof = history.proof()
    assert proof.problems() == []
    rows = [line for line in json_report(verdict) if line["type"] == "queue"]
    assert {row["queue"] for row in rows} == {
        "q.a",
        "q.b",
        "q.all::last",
        "q.all::strict",
        "q.all::late",
        "q.all::once",
        "q.once",
    }
    for row in rows:
        found = proof.accounts[row["queue"]].counts
        assert (row["added"], row["dead"], row["ready"]) == (found.added, found.dead, found.ready)


def test_a_missing_copy_and_an_incomplete_commit_are_reported(spark: SparkSession) -> None:
    history = busy_history()
    history.drop(Role.EVICTED, 0)
    history.change_line("added", lambda line: line.update(event="forgotten"))
    found = {(kind, queue) for kind, queue, _, _ in named(audit(spark, history, queues=QUEUES))}
    assert ("missing", "q.all::last") in found
