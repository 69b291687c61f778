"""An import beside a real RabbitMQ; that a difference is found; and what is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from ringfaust.importers import rabbitmq_policies
from tests.oracle.rabbitmq.broker import Broker
from tests.oracle.rabbitmq.game import Tally, play
from tests.oracle.rabbitmq.histories import history
from tests.oracle.rabbitmq.packages import NoRabbitMQ

LENGTH = 30
KINDS = "ack advance close consume publish reject release".split()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    try:
        running = Broker()
    except NoRabbitMQ as error:
        pytest.skip(str(error))
    with running:
        yield running


def test_what_is_imported_answers_like_rabbitmq(broker: Broker) -> None:
    """`make oracle-rabbitmq` plays 200."""
    tally: Tally = Counter()
    for seed in range(20):
        difference = play(broker, seed, LENGTH, tally)
        assert difference is None, f"make oracle-rabbitmq RUNS=1 SEED={seed}\n{difference}"
    assert all(tally[kind] for kind in (*KINDS, "maxlen", "rejected", "expired", "refused")), tally


def test_an_import_that_decides_otherwise_is_found(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a policy applies to a queue whose type does not have all that it sets."""
    assert play(broker, DIFFERS, LENGTH) is None
    monkeypatch.setattr(rabbitmq_policies, "_NOT_APPLICABLE", {})
    difference = play(broker, DIFFERS, LENGTH)
    assert difference is not None and difference.rabbitmq != difference.ours
    assert str(difference).startswith(f"after operation {difference.step} (kind=")


def test_a_seed_gives_one_history_and_all_that_is_promised_is_drawn() -> None:
    assert history(17, LENGTH) == history(17, LENGTH) != history(18, LENGTH)
    drawn = [history(seed, LENGTH) for seed in range(100)]
    assert {operation.kind for each in drawn for operation in each.operations} == {*KINDS}
    queues = [queue for each in drawn for queue in each.definitions["queues"]]
    arguments = Counter(key for queue in queues for key in queue["arguments"])
    assert {key.removeprefix("x-") for key in arguments} == {
        "max-length", "max-length-bytes", "message-ttl", "delivery-limit", "overflow",
        "dead-letter-exchange", "max-priority", "single-active-consumer", "queue-type",
    }  # fmt: skip
    exchanges = [one for each in drawn for one in each.definitions["exchanges"]]
    assert {one["type"] for one in exchanges} == {"direct", "topic", "fanout", "headers"}
    assert any(one["arguments"] for one in exchanges)
    assert any(len(each.definitions["policies"]) > 1 for each in drawn)
    assert any(each.definitions["parameters"] for each in drawn)


DIFFERS = 203
