"""Copies and transactions: what the brokers must provide besides the topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError, TransactionalIdAuthorizationFailed

from ringfaust.config.replication import no_coordinator, replication_problems
from ringfaust.kafka import admin as admins
from ringfaust.kafka.admin import ExistingTopic, KafkaAdmin
from ringfaust.testing.broker import EmbeddedBroker
from tests.chaos.harness import Application


def found(
    copies: int, in_sync: int | None = None, *, needed: str = "1", wanted: int = -1
) -> list[tuple[str, str]]:
    there = copies if in_sync is None else in_sync
    topic = ExistingTopic(4, {"min.insync.replicas": needed}, copies, there)
    return list(replication_problems("app.control", topic, wanted))


@pytest.mark.parametrize("copies", [1, 2])
def test_as_many_copies_as_the_brokers_have_are_enough(copies: int) -> None:
    assert found(copies) == []
    assert found(3, needed="2", wanted=3) == []


def test_more_copies_in_sync_than_there_are_can_never_be_had() -> None:
    ((what, text),) = found(1, needed="2")
    assert what == "min_insync"
    assert "has 1 copy of each partition, but min.insync.replicas=2" in text
    assert "kafka-configs.sh --bootstrap-server HOST:PORT --alter" in text
    assert "--entity-name app.control --add-config min.insync.replicas=1" in text


def test_missing_brokers_are_named() -> None:
    ((what, text),) = found(3, 1, needed="2")
    assert what == "in_sync"
    assert "workers cannot commit until more brokers are back" in text


def test_three_copies_of_which_one_is_enough_can_lose_records() -> None:
    ((what, text),) = found(3)
    assert what == "copies"
    assert "--add-config min.insync.replicas=2" in text


def test_fewer_copies_than_configured_are_named() -> None:
    ((what, text),) = found(1, wanted=3)
    assert what == "copies"
    assert "has 1 copy of each partition, but replication_factor in worker.yaml is 3" in text


def test_a_user_without_permission_for_transactions_learns_which() -> None:
    text = no_coordinator(TransactionalIdAuthorizationFailed(), "shop")
    assert "--operation write --operation describe" in text
    assert "--transactional-id shop-" in text


class FakeClient:
    """An admin client whose cluster creates its transaction log only after some requests."""

    def __init__(self, refusals: int) -> None:
        self._refusals = refusals

    async def find_coordinator(self, name: str, kind: int) -> int:
        assert (name, kind) == ("app-0", 1)
        self._refusals -= 1
        if self._refusals >= 0:
            raise GroupCoordinatorNotAvailableError
        return 1


async def test_a_new_cluster_may_take_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admins, "_RETRY_S", 0.0)
    assert await KafkaAdmin(FakeClient(3)).coordinator_error("app-0") is None  # type: ignore[arg-type]
    monkeypatch.setattr(admins, "COORDINATOR_TIMEOUT_S", 0.0)
    error = await KafkaAdmin(FakeClient(10**6)).coordinator_error("app-0")  # type: ignore[arg-type]
    assert isinstance(error, GroupCoordinatorNotAvailableError)


@pytest.fixture
def lonely_app(tmp_path: Path) -> Iterator[Application]:
    """An application on one broker that wants three copies of its transaction log."""
    properties = {"transaction.state.log.replication.factor": "3"}
    with EmbeddedBroker(properties=properties) as broker:
        queues = {"routes": [{"topic": "in", "queue": "q", "hop": "never"}], "queues": {"q": {}}}
        app = Application(tmp_path / "app", broker.bootstrap_servers, queues, partitions=1)
        app.create_topics()
        yield app
        app.end()


@pytest.mark.kafka
def test_brokers_without_a_transaction_coordinator_are_reported(lonely_app: Application) -> None:
    config = ("--config", str(lonely_app.config_dir))
    verified = lonely_app.run("topics", "verify", *config)
    assert verified.returncode == 1
    assert "name no transaction coordinator" in verified.stdout
    assert "transaction.state.log.replication.factor (3 by default)" in verified.stdout
    data = str(lonely_app.folder / "data")
    refused = lonely_app.run("worker", *config, "--data-dir", data)
    assert refused.returncode == 2
    assert "name no transaction coordinator" in refused.stderr
