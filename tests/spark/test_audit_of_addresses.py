"""The audit where one record has several fates, or none yet: addresses, limits, transactions."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ringfaust.config import QueuesConfig
from ringfaust.protocol.records import Role
from tests.spark.audit_history import audit
from tests.spark.test_audit import named, told
from tests.testing.test_accounts import History
from tests.testing.test_accounts_of_addresses import CATALOG

QUEUES = QueuesConfig.model_validate(
    {
        "routes": [{"topic": "in", "queue": "q.{key}"}],
        "queues": {"q.*": {}},
        "addresses": {"q.all": None, "q.nobody": None},
    }
)


def told_of() -> History:
    """Copies, some refused; one sent to nobody; transactions of each kind."""
    history = History(CATALOG)
    for key in ("all", "all", "all", "a", "a", "nobody"):
        history.send(key, b"x")
    history.ask("create_queue", "q.all::late", settings={"max_messages": -1})
    for xid, decision in {"yes": "commit", "no": "rollback_xid", "open": ""}.items():
        history.say("begin", xid=xid)
        for key in ("b", "all", "a"):
            history.send(key, b"x", xid=xid)
        if decision:
            history.say("prepare", xid=xid)
            history.say(decision, xid=xid)
    return history


def test_it_adds_up(spark: SparkSession) -> None:
    history = told_of()
    verdict = audit(spark, history, queues=QUEUES, window="1 second")
    assert named(verdict) == set()
    assert verdict.balanced
    proof = history.proof()
    assert proof.words() == []
    rows = [line for line in told(verdict) if line["type"] == "queue"]
    assert {row["queue"] for row in rows} == {
        "q.a",
        "q.b",
        "q.all::last",
        "q.all::strict",
        "q.all::late",
    }
    for row in rows:
        found = proof.rows[row["queue"]]
        assert (row["added"], row["dead"], row["ready"]) == (found.added, found.dead, found.ready)


def test_a_copy_that_is_missing_and_a_commit_that_forgets_are_found(spark: SparkSession) -> None:
    history = told_of()
    history.drop(Role.EVICTED, 0)
    history.change_line("added", lambda line: line.update(event="forgotten"))
    found = {(kind, queue) for kind, queue, _, _ in named(audit(spark, history, queues=QUEUES))}
    assert ("missing", "q.all::last") in found
