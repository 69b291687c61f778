"""An import beside a real RabbitMQ; that a difference is found; and what is drawn."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from ringfaust.importers import rabbitmq_policies
from ringfaust.importers.imported import ImportFinding, Verdict
from ringfaust.importers.rabbitmq import import_rabbitmq
from tests.oracle.comparing import Tally
from tests.oracle.rabbitmq.broker import Broker
from tests.oracle.rabbitmq.game import play
from tests.oracle.rabbitmq.histories import history
from tests.oracle.rabbitmq.ours import applying
from tests.oracle.rabbitmq.packages import NoRabbitMQ

LENGTH = 30
DIFFERS = 203
"""A seed whose definitions have a policy that does not apply to a classic queue."""
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
    wanted = (*KINDS, "maxlen", "rejected", "expired", "refused")
    for seed in range(60):
        if seed >= 10 and all(tally[kind] for kind in wanted):
            break  # what is met depends a little on how fast RabbitMQ is
        difference = play(broker, seed, LENGTH, tally)
        assert difference is None, f"make oracle-rabbitmq RUNS=1 SEED={seed}\n{difference}"
    assert all(tally[kind] for kind in wanted), tally


def test_an_import_that_decides_otherwise_is_found(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a policy applies to a queue whose type does not have all that it sets."""
    assert play(broker, DIFFERS, LENGTH) is None
    monkeypatch.setattr(rabbitmq_policies, "_NOT_APPLICABLE", {"classic": frozenset()})
    difference = play(broker, DIFFERS, LENGTH)
    assert difference is not None and difference.theirs != difference.ours
    assert str(difference).startswith(f"after operation {difference.step} (kind=")


@pytest.mark.parametrize(
    "write", [".*", "", "^q$", "^x$", "^amq\\.", "default", "^(q|x)$", "(x|lt)$", "^$"]
)
def test_who_may_send_is_who_may_publish(broker: Broker, write: str, tmp_path: Path) -> None:
    rights = {"user": "u", "vhost": "rights", "configure": "", "write": write, "read": ""}
    definitions = {
        "vhosts": [{"name": "rights"}], "permissions": [rights],
        "users": [{"name": "u", "password": "secret", "tags": ""}],
        "queues": [definition("q", arguments={}), definition("r", arguments={})],
        "exchanges": [definition("x", type="fanout", internal=False, arguments={})],
        "bindings": [{"source": "x", "vhost": "rights", "destination": "r", "routing_key": "",
                      "destination_type": "queue", "arguments": {}}],
    }  # fmt: skip
    broker.load(definitions)
    try:
        allowed = {
            topic
            for topic, exchange, key in (("q", "", "q"), ("x", "x", ""))
            if may_publish(broker, exchange, key)
        }
    finally:
        broker.remove("rights")
    (tmp_path / "definitions.json").write_text(json.dumps(definitions))
    acls = import_rabbitmq(tmp_path / "definitions.json").acls
    topics = {acl.partition("--topic ")[2] for acl in acls}
    assert topics == allowed | ({"messages"} if allowed == {"q", "x"} else set())


def definition(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "vhost": "rights", "durable": True, "auto_delete": False, **more}


def may_publish(broker: Broker, exchange: str, key: str) -> bool:
    """Whether the user u may."""
    credentials = pika.PlainCredentials("u", "secret")
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, "rights", credentials)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            channel.basic_publish(exchange, key, b"")
        except pika.exceptions.ChannelClosedByBroker as error:
            assert error.reply_code == 403
            return False
    return True


def test_a_machine_without_apt_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoRabbitMQ, match="from Debian's packages, and there is no apt-get"):
        Broker()


WINS, LOSES = "queue q, max-length = 3", "queue q, policy p, max-length = 4"


@pytest.mark.parametrize(("lines", "expected"), [
    ([], []),
    ([(WINS, "ring_size: 3")], [WINS]),
    ([(LOSES, "max-length = 3 of queue q applies, as in RabbitMQ"), (WINS, "ring_size: 3")],
     [WINS]),
    ([(LOSES, "an older policy applies, as in RabbitMQ")], [LOSES]),
])  # fmt: skip
def test_the_lines_that_apply_are_those_that_lose_to_no_other(
    lines: list[tuple[str, str]], expected: list[str]
) -> None:
    found = [ImportFinding(Verdict.CHANGED, 0, *line) for line in lines]
    assert [each.setting for each in applying(found)] == expected


@pytest.mark.parametrize("lines", [
    [(LOSES, "max-length = 3 of queue q applies, as in RabbitMQ")],
    [(LOSES, "max-length = 9 of queue q applies, as in RabbitMQ"), (WINS, "ring_size: 3")],
    [(WINS, "max-length = 3 of queue q applies, as in RabbitMQ")],
    [(LOSES, "max-length = 3 of queue q applies, as in RabbitMQ"),
     (WINS, "max-length = 4 of queue q, policy p applies, as in RabbitMQ")],
])  # fmt: skip
def test_a_line_that_loses_to_one_that_is_not_there_is_a_fault(
    lines: list[tuple[str, str]],
) -> None:
    with pytest.raises(AssertionError):
        applying([ImportFinding(Verdict.CHANGED, 0, *line) for line in lines])


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
