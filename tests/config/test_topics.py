"""The topics: their declarations, how what is there is judged, and a real broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import UnknownTopicOrPartitionError

from ringfaust.config import QueuesConfig, RouteConfig, WorkerConfig
from ringfaust.config.documents import ConfigError, read, shipped
from ringfaust.config.topics import (
    TopicDeclaration,
    TopicProblem,
    WantedTopic,
    check_topics,
    compare_topics,
    create_topics,
    declarations,
    problems,
    wanted_topics,
)
from ringfaust.kafka.admin import (
    CONNECT_TIMEOUT_S,
    BrokerRefused,
    BrokerUnreachable,
    ExistingTopic,
    KafkaAdmin,
    open_admin,
)
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker

QUEUES = QueuesConfig(
    routes=[
        RouteConfig(topic="orders", queue="orders"),
        RouteConfig(topic="flights", queue="by.{key}"),
    ],
    queues={"orders": {}, "by.*": {}},
)
OWN = set(Role) - {Role.PRODUCER}


def wanted(role: Role) -> WantedTopic:
    return next(t for t in wanted_topics(WorkerConfig(), QUEUES) if t.declaration.role is role)


def as_declared(topic: WantedTopic) -> ExistingTopic:
    return ExistingTopic(topic.partitions, topic.declaration.kafka_settings(), 1, 1)


def judge(topic: WantedTopic, partitions: int = 4, **settings: str) -> list[TopicProblem]:
    there = {name.replace("_", "."): value for name, value in settings.items()}
    right = topic.declaration.kafka_settings()
    return list(problems(topic, ExistingTopic(partitions, right | there, 1, 1)))


# --- declarations -------------------------------------------------------------------------------


def test_each_role_has_one_declaration_in_the_file_of_its_name():
    assert {path.stem for path in shipped("topics").glob("*.yaml")} == {*Role}
    assert all(found.role is role for role, found in declarations().items())


def test_the_worker_names_topics_as_declared():
    config = WorkerConfig(application="shop")
    for role in OWN:
        assert declarations()[role].name.format(application="shop") == config.topic(role)


def test_only_state_is_compacted_and_only_what_we_read_has_the_brokers_time():
    found = declarations()
    assert {role for role in Role if found[role].cleanup == "compact"} == {
        Role.CHANGELOG,
        Role.STATUS,
        Role.CONFIGURATION,
    }
    appended = {role for role in Role if found[role].timestamps == "append"}
    assert appended == {Role.CONTROL, Role.HOP, Role.PRODUCER}


def test_the_largest_record_taken_in_fits_our_topics_with_its_headers():
    most = next(
        m.le for m in WorkerConfig.model_fields["max_record_bytes"].metadata if hasattr(m, "le")
    )
    for role in OWN:
        assert declarations()[role].max_message_bytes >= most + 100_000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rol": "dead"}, "unknown setting; did you mean 'role'?"),
        ({"name": "dead"}, r"must be '\{application\}.dead'"),
        ({"cleanup": "never"}, "must be 'delete' or 'compact'"),
        ({"why": None}, "must be text"),
    ],
)
def test_a_wrong_declaration_is_refused(change, words, tmp_path):
    path = tmp_path / "dead.yaml"
    given = yaml.safe_load((shipped("topics") / "dead.yaml").read_text())
    path.write_text(yaml.safe_dump(given | change))
    with pytest.raises(ConfigError, match=words):
        read(path).model(TopicDeclaration)


# --- problems -----------------------------------------------------------------------------------


def test_an_application_needs_its_own_topics_and_those_of_its_routes():
    topics = wanted_topics(WorkerConfig(application="shop", partitions=3), QUEUES)
    assert [topic.name for topic in topics if topic.declaration.role is Role.PRODUCER] == [
        "orders",
        "flights",
    ]
    assert {t.name for t in topics} - {"orders", "flights"} == {f"shop.{role}" for role in OWN}
    # A fixed queue takes the hop, so its topic may have any number of partitions.
    assert [topic.name for topic in topics if not topic.exact] == ["orders"]
    assert {topic.partitions for topic in topics} == {3}


@pytest.mark.parametrize("role", Role)
def test_a_topic_as_declared_has_no_problem(role):
    assert list(problems(wanted(role), as_declared(wanted(role)))) == []


@pytest.mark.parametrize("role", Role)
def test_a_missing_topic_is_a_problem_that_names_the_remedy(role):
    (problem,) = problems(wanted(role), None)
    severity = "warning" if role in (Role.STATUS, Role.CONFIGURATION) else "error"
    assert (problem.what, problem.severity) == ("missing", severity)
    assert "does not exist. `ringfaust topics create` creates it" in problem.text


def test_a_wrong_number_of_partitions_is_explained():
    (problem,) = judge(wanted(Role.CONTROL), partitions=1)
    assert (problem.what, problem.severity) == ("partitions", "error")
    assert "has 1 partition, but `partitions` in worker.yaml is 4" in problem.text
    orders, flights = (t for t in wanted_topics(WorkerConfig(), QUEUES) if "." not in t.name)
    assert judge(orders, partitions=1) == []
    (problem,) = judge(flights, partitions=12)
    assert problem.severity == "error"
    assert "needs exactly 4" in problem.text
    assert "hop: always" in problem.text


def test_a_changelog_that_deletes_old_state_is_an_error():
    for policy in ("delete", "compact,delete"):
        (problem,) = judge(wanted(Role.CHANGELOG), cleanup_policy=policy)
        assert (problem.what, problem.severity) == ("cleanup", "error")
        assert "would delete old state" in problem.text
        assert "--add-config cleanup.policy=compact" in problem.text


def test_an_unsuitable_setting_of_a_producers_topic_is_only_a_warning():
    found = judge(
        wanted(Role.PRODUCER), message_timestamp_type="CreateTime", cleanup_policy="compact"
    )
    assert [(each.what, each.severity) for each in found] == [
        ("cleanup", "warning"),
        ("timestamps", "warning"),
    ]


def test_a_changelog_that_drops_tombstones_too_early_is_an_error():
    (problem,) = judge(wanted(Role.CHANGELOG), delete_retention_ms="86400000")
    assert (problem.what, problem.severity) == ("tombstones", "error")
    assert "delete.retention.ms=604800000" in problem.text


def test_wrong_timestamps_and_sizes_of_our_own_topics_are_errors():
    (problem,) = judge(wanted(Role.CONTROL), message_timestamp_type="CreateTime")
    assert problem.severity == "error"
    assert "a client with a wrong clock could change the time" in problem.text
    (problem,) = judge(wanted(Role.DEAD), message_timestamp_type="LogAppendTime")
    assert problem.severity == "error"
    (problem,) = judge(wanted(Role.CHANGELOG), max_message_bytes="1048588")
    assert (problem.what, problem.severity) == ("max_message_bytes", "error")
    assert "1,048,588 bytes, but needs to accept 2,097,152" in problem.text


# --- without a broker ---------------------------------------------------------------------------


async def test_a_closed_port_is_reported_at_once():
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    config = WorkerConfig(bootstrap_servers=f"127.0.0.1:{port}")
    with pytest.raises(BrokerUnreachable) as caught:
        await check_topics(config, QUEUES)
    assert caught.value.servers == config.bootstrap_servers
    why = f"127.0.0.1:{port} cannot be reached (Connection refused)."
    assert f"No Kafka broker answers at 127.0.0.1:{port}: {why}" in str(caught.value)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08" + b"x" * 8]
)
async def test_a_server_that_is_not_kafka_is_reported(answer, monkeypatch):
    monkeypatch.setattr("ringfaust.kafka.admin.CONNECT_TIMEOUT_S", 0.3)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer:
            await reader.read(1)
            writer.write(answer)
        await reader.read()  # until the client closes the connection
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        config = WorkerConfig(bootstrap_servers=f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(BrokerUnreachable) as caught:
            async with open_admin(config.brokers()):
                pass
    assert caught.value.servers == config.bootstrap_servers
    assert "does not answer as a Kafka broker with protocol PLAINTEXT" in str(caught.value)


def test_the_default_timeout_for_connecting_is_a_few_seconds():
    assert CONNECT_TIMEOUT_S <= 8


# --- with a broker ------------------------------------------------------------------------------


@pytest.mark.kafka
async def test_topics_are_created_once_and_verified(broker: EmbeddedBroker):
    config = WorkerConfig(application="topics-once", bootstrap_servers=broker.bootstrap_servers)
    queues = _queues("topics-once-in")
    missing = await check_topics(config, queues)
    assert {problem.what for problem in missing} == {"missing"}
    one, other = await asyncio.gather(create_topics(config, queues), create_topics(config, queues))
    names = {topic.name for topic in wanted_topics(config, queues)}
    assert {problem.topic for problem in missing} == names == {*one, *other}
    assert not {*one} & {*other}
    assert await check_topics(config, queues) == []
    assert await create_topics(config, queues) == []
    for finding in await compare_topics(config, queues):
        declared = finding.wanted.declaration.kafka_settings()
        assert finding.existing is not None
        assert declared.items() <= finding.existing.settings.items()


@pytest.mark.kafka
async def test_existing_topics_are_checked_but_never_changed(broker: EmbeddedBroker):
    config = WorkerConfig(application="topics-odd", bootstrap_servers=broker.bootstrap_servers)
    queues = _queues("topics-odd-in")
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    odd = [("topics-odd-in", 2), ("topics-odd.changelog", 4), ("topics-odd.control", 3)]
    await admin.create_topics([NewTopic(name, count, 1) for name, count in odd])
    await admin.close()
    created = await create_topics(config, queues)
    assert not set(created) & {name for name, _ in odd}
    found = {(p.topic, p.what, p.severity) for p in await check_topics(config, queues)}
    assert found >= {
        ("topics-odd-in", "partitions", "error"),
        ("topics-odd-in", "timestamps", "warning"),
        ("topics-odd.changelog", "cleanup", "error"),
        ("topics-odd.control", "partitions", "error"),
        ("topics-odd.control", "timestamps", "error"),
    }
    assert {topic for topic, _, _ in found} == {name for name, _ in odd}


async def test_a_topic_that_the_broker_asked_does_not_know_yet_is_not_there() -> None:
    """One broker may list a new topic while another has not heard of it."""

    class Client:
        async def describe_topics(self) -> list[dict[str, Any]]:
            partitions = [{"replicas": [1], "isr": [1]}]
            return [{"topic": name, "partitions": partitions, "error_code": 0} for name in "ab"]

        async def describe_configs(self, _: object) -> list[Any]:
            unknown = UnknownTopicOrPartitionError.errno
            resources = [(0, "", 2, "a", [("x", "1")]), (unknown, "", 2, "b", [])]
            return [SimpleNamespace(resources=resources)]

    admin = KafkaAdmin(cast("Any", Client()))
    assert await admin.existing(["a", "b"]) == {"a": ExistingTopic(1, {"x": "1"}, 1, 1)}


@pytest.mark.kafka
async def test_a_refusal_by_the_broker_is_reported(broker: EmbeddedBroker):
    config = WorkerConfig(
        application="topics-copies",
        bootstrap_servers=broker.bootstrap_servers,
        replication_factor=3,
    )
    with pytest.raises(BrokerRefused, match=r"could not create topic topics-copies\.\w+: .*3"):
        await create_topics(config, _queues("topics-copies-in"))


def _queues(topic: str) -> QueuesConfig:
    return QueuesConfig(routes=[RouteConfig(topic=topic, queue="by.{key}")], queues={"by.*": {}})
