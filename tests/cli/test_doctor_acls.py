"""Brokers with ACLs: what `ringfaust doctor` says is missing, and what others than workers need."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.cli.operate import connect_options
from ringfaust.cli.permissions import Operation
from ringfaust.client import StatusReader
from ringfaust.client.trace import trace
from ringfaust.config import load
from ringfaust.config.topics import create_topics
from ringfaust.protocol.records import Role
from ringfaust.testing.broker import EmbeddedBroker
from tests.broker.clients import client_of, run
from tests.chaos.harness import Application, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

USER, PASSWORD = "rings", "secret"
TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
LITERAL, PREFIXED = 3, 4
ALLOW = 3
_SETTINGS = """
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},\
SASL_PLAINTEXT://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,\
SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_rings="secret";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


class Acl(NamedTuple):
    """Allows the user one operation."""

    resource: int
    name: str
    operation: int
    pattern: int = LITERAL


class StrictBroker(EmbeddedBroker):
    """Its second door asks for a password and obeys ACLs. Who comes by the first may do all."""

    @property
    def strict(self) -> str:
        return f"127.0.0.1:{self._port + 1}"

    def _write_properties(self, data_dir: Path) -> Path:
        path = super()._write_properties(data_dir)
        text = _SETTINGS.format(
            plain=self._port, controller=self._controller_port, port=self._port + 1
        )
        path.write_text(path.read_text("utf-8") + text, "utf-8")
        return path

    async def allow(self, acls: Sequence[Acl]) -> None:
        client = AIOKafkaClient(bootstrap_servers=self.bootstrap_servers)
        try:
            await client.bootstrap()
            (node,) = client.cluster.brokers()
            for resource, name, operation, pattern in acls:
                wanted = CreateAclsRequest(
                    resource, name, pattern, f"User:{USER}", "*", operation, ALLOW
                )
                answer = await client.send(node.nodeId, wanted)
                assert [code for code, _ in answer.creation_responses] == [0], answer
        finally:
            await client.close()


@pytest.fixture(scope="module")
def strict() -> Iterator[StrictBroker]:
    with StrictBroker() as broker:
        yield broker


@pytest.fixture
def app(strict: StrictBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    """Its topics exist; its user may do nothing yet."""
    monkeypatch.setenv("RINGS_PASSWORD", PASSWORD)
    queues = {
        "routes": [{"topic": f"in-{tmp_path.name}", "queue": "q", "hop": "always"}],
        "queues": {"q": {}},
    }
    security = {
        "protocol": "SASL_PLAINTEXT", "username": USER, "password_env": "RINGS_PASSWORD",
    }  # fmt: skip
    app = Application(tmp_path / "app", strict.strict, queues, partitions=1, security=security)
    create_its_topics(strict, app)
    return app


def create_its_topics(strict: StrictBroker, app: Application) -> None:
    open_door = {"bootstrap_servers": strict.bootstrap_servers, "security": {}}
    asyncio.run(create_topics(*load(app.config_dir, **open_door)))


def doctor(app: Application) -> list[dict[str, str]]:
    result = CliRunner().invoke(main, ["doctor", "--config", str(app.config_dir), "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return list(json.loads(result.stdout))


def remedied(findings: list[dict[str, str]]) -> list[Acl]:
    """The ACLs that the remedies would create."""
    found = []
    for each in findings:
        kind, name = re.findall(r"--(topic|group) (\S+)$", each["remedy"])[0]
        assert f"--allow-principal User:{USER} " in each["remedy"]
        for title in re.findall(r"--operation (\w+)", each["remedy"]):
            (operation,) = (every for every in Operation if every.title == title)
            found.append(Acl({"topic": TOPIC, "group": GROUP}[kind], name, operation))
    return found


async def test_what_acls_lack_is_named_and_the_remedies_let_a_worker_run(
    strict: StrictBroker, app: Application
) -> None:
    acls = [each for each in await asyncio.to_thread(doctor, app) if each["check"] == "acls"]
    texts = {each["text"] for each in acls}
    assert f"this user lacks Write, Describe, DescribeConfigs on topic {app.topic('dead')}" in texts
    assert f"this user lacks Read, Describe, DescribeConfigs on topic {app.inputs[0]}" in texts
    group = app.worker_config.application
    assert f"this user lacks Read, Describe on group {group}" in texts
    assert {each["level"] for each in acls} == {"fail"}

    ids = [
        Acl(TRANSACTIONAL_ID, f"{group}-", each, PREFIXED)
        for each in (Operation.WRITE, Operation.DESCRIBE)
    ]
    await strict.allow([*remedied(acls), *ids])
    by_check = {each["check"]: each for each in await asyncio.to_thread(doctor, app)}
    assert by_check["acls"]["text"].startswith("this user has the permissions of a worker")
    assert {name for name, each in by_check.items() if each["level"] == "fail"} == set()
    assert by_check["lake"]["text"].startswith("not checked: this user lacks Describe on group")
    worker = app.new_worker()
    try:
        await until(
            lambda: re.search(r"(?<!not) ready: ", worker.log_text()), 60, "the worker is ready"
        )
    finally:
        worker.stop()


def of_an_operator(app: Application, *inputs: str) -> list[Acl]:
    """What docs/operations.md lists for who runs `ringfaust apply` while workers run."""
    name = app.worker_config.application
    ours = {role: app.topic(role) for role in Role if role is not Role.PRODUCER}
    topics = [
        *((ours[role], Operation.READ) for role in (Role.REPLIES, Role.CONFIGURATION, Role.STATUS)),
        *((ours[role], Operation.WRITE) for role in (Role.CONTROL, Role.CONFIGURATION)),
        *((topic, Operation.DESCRIBE) for topic in (*ours.values(), *inputs)),
        *((topic, Operation.DESCRIBE_CONFIGS) for topic in (*ours.values(), *inputs)),
    ]
    return [
        *(Acl(TOPIC, topic, operation) for topic, operation in topics),
        Acl(GROUP, name, Operation.DESCRIBE),
        *(
            Acl(TRANSACTIONAL_ID, f"{name}-apply/configuration", operation)
            for operation in (Operation.WRITE, Operation.DESCRIBE)
        ),
    ]


@pytest.fixture
async def free(
    strict: StrictBroker, app: Application, tmp_path: Path
) -> AsyncIterator[Application]:
    """The same application with a worker that may do anything: the rights are those of the user."""
    queues, name = queues_of(app), app.worker_config.application
    free = Application(
        tmp_path / "free", strict.bootstrap_servers, queues, partitions=1, application=name
    )
    worker = free.new_worker()
    try:
        await until(worker.has_connected, 60, "the worker runs")
        yield free
    finally:
        free.end()


def queues_of(app: Application) -> dict[str, Any]:
    return dict(yaml.safe_load((app.config_dir / "queues.yaml").read_text()))


async def test_the_rights_that_operations_lists_suffice_for_apply(
    strict: StrictBroker, app: Application, free: Application, tmp_path: Path
) -> None:
    before, new = queues_of(app), f"new-{tmp_path.name}"
    route = {"topic": new, "queue": "q", "hop": "always"}
    app.write("queues.yaml", {**before, "routes": [*before["routes"], route]})
    await asyncio.to_thread(create_its_topics, strict, app)
    await strict.allow(of_an_operator(app, *app.inputs, new))
    assert "revision 1 is in effect in partition 0" in await run(
        app, "apply", "--yes", in_a_process=True
    )
    assert await free.stop(*free.workers) == []
    app.write("queues.yaml", before)
    await strict.allow([Acl(TOPIC, app.topic("changelog"), Operation.READ)])
    assert "revision 2 is in the log" in await run(app, "apply", "--yes")


def to_redrive_and_look_on(app: Application) -> list[Acl]:
    """What docs/operations.md lists for `dead redrive`, `StatusReader` and `trace`."""
    name = app.worker_config.application
    topics = [app.topic(role) for role in ("configuration", "dead", "status", "events")]
    return [
        *(Acl(TOPIC, topic, Operation.READ) for topic in (*topics, *app.inputs)),
        *(Acl(TOPIC, topic, Operation.WRITE) for topic in app.inputs),
        Acl(GROUP, f"{name}-redriven/", Operation.READ, PREFIXED),
        Acl(TRANSACTIONAL_ID, f"{name}-redrive", Operation.WRITE),
    ]


async def test_the_rights_that_operations_lists_suffice_to_redrive_and_to_look_on(
    strict: StrictBroker, app: Application, free: Application
) -> None:
    """Read and write include describe."""
    async with client_of(free) as client, asyncio.timeout(60):
        await client.send(app.inputs[0], ["m"], "any", ringfaust_expires_at_ms="1")
        while not (await client.counts("q"))["expired"]:
            await asyncio.sleep(0.05)
    await strict.allow(to_redrive_and_look_on(app))
    said = await run(app, "dead", "redrive", "--queue", "q", "--yes", in_a_process=True)
    assert "1 message sent again" in said
    options = connect_options(app.worker_config)
    async with StatusReader(**options) as status:
        assert [each.queue for each in status.queues()] == ["q"]
    lifecycle = (await trace("m", since_ms=0, **options)).lifecycles[0]
    assert lifecycle.source == f"{app.inputs[0]}/0/0"
