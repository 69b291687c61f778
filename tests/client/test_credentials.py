"""SCRAM, OAUTHBEARER and files that change, before a real broker; no worker is restarted."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from cryptography.hazmat.primitives import serialization

from ringfaust.client import RingConsumer, RingProducer
from ringfaust.config import ConfigError, WorkerConfig
from ringfaust.config.security import SecurityConfig
from ringfaust.credentials import (
    BadCredentials,
    FileContext,
    FilePassword,
    TokenProvider,
    msk_iam_token,
)
from ringfaust.java.jars import KAFKA, fetch
from ringfaust.java.runtime import find_java
from ringfaust.testing.broker import EmbeddedBroker, free_port
from tests.chaos.harness import Application
from tests.client.test_documents import ROOT, blocks

DEADLINE_S = 60
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)


def issue(authority: trustme.CA, folder: Path, name: str) -> None:
    """cert.pem, and key.pem with the certificate behind the key, as Java wants it."""
    issued = authority.issue_cert(name)
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    folder.mkdir(exist_ok=True)
    (folder / "cert.pem").write_bytes(chain)
    (folder / "key.pem").write_bytes(pem + chain)


class Doors(EmbeddedBroker):
    """A broker that takes SCRAM and tokens, and behind TLS also asks for a certificate."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.authority = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca_file)
        issue(self.authority, folder / "broker", "127.0.0.1")
        self.sasl, self.tls = (f"127.0.0.1:{free_port()}" for _ in range(2))
        places = {
            "PLAINTEXT": self.bootstrap_servers, "SASL_PLAINTEXT": self.sasl, "SASL_SSL": self.tls
        }  # fmt: skip
        doors = ",".join(f"{kind}://{place}" for kind, place in places.items())
        kinds = ",".join(["CONTROLLER:PLAINTEXT", *(f"{kind}:{kind}" for kind in places)])
        self._properties = {
            "listeners": f"{doors},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": doors,
            "listener.security.protocol.map": kinds,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "broker" / "key.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
            "listener.name.sasl_ssl.ssl.client.auth": "required",
        }
        for door in ("sasl_plaintext", "sasl_ssl"):
            name = f"listener.name.{door}"
            self._properties |= {
                f"{name}.scram-sha-256.sasl.jaas.config": _SCRAM,
                f"{name}.scram-sha-512.sasl.jaas.config": _SCRAM,
                f"{name}.oauthbearer.sasl.jaas.config": _OAUTH,
            }

    def set_password(self, user: str, password: str, size: int = 256) -> None:
        """Let a user have this password for SCRAM-SHA-256 or -512."""
        jars = ":".join(map(str, sorted(fetch(KAFKA).glob("*.jar"))))
        change = f"SCRAM-SHA-{size}=[password={password}]"
        done = subprocess.run(
            [
                find_java().path, "-cp", jars, "kafka.admin.ConfigCommand", "--bootstrap-server",
                self.bootstrap_servers, "--alter", "--add-config", change, "--entity-type", "users",
                "--entity-name", user,
            ],
            check=False, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr[-3_000:]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with Doors(tmp_path_factory.mktemp("doors")) as broker:
        for size in (256, 512):
            broker.set_password("rings", "first", size)
        yield broker


async def enters(servers: str, options: dict[str, Any]) -> bool:
    """Whether a client with these options is let in."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, **options)
    try:
        await producer.start()
    except KafkaError:
        return False
    else:
        return True
    finally:
        await producer.stop()


def scram(size: int, password_file: Path) -> dict[str, Any]:
    security = SecurityConfig.model_validate(
        {
            "protocol": "SASL_PLAINTEXT", "sasl_mechanism": f"SCRAM-SHA-{size}",
            "username": "rings", "password_file": str(password_file),
        }
    )  # fmt: skip
    return security.client_options()


@pytest.mark.kafka
@pytest.mark.parametrize("size", [256, 512])
async def test_scram_lets_the_user_in_who_has_the_password(
    doors: Doors, tmp_path: Path, size: int
) -> None:
    password = tmp_path / "password"
    password.write_text("wrong\n")
    options = scram(size, password)
    assert not await enters(doors.sasl, options)
    password.write_text("first\n")
    assert await enters(doors.sasl, options), "the same options read the file again"
    assert "first" not in repr(options)


def made_token(user: str) -> str:
    """An unsigned one, which only a broker for tests accepts."""
    now_s = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now_s, "exp": now_s + 600})
    raw = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts]
    return b".".join([*raw, b""]).decode()


_threads: list[threading.Thread] = []


def token() -> str:
    """What `token_function` names below."""
    _threads.append(threading.current_thread())
    return made_token("rings")


async def token_of_a_coroutine() -> str:
    return made_token("rings")


def no_token() -> str:
    return "not a token"


@pytest.mark.kafka
async def test_a_token_of_a_function_lets_in_with_oauthbearer(doors: Doors) -> None:
    async def tried(function: str) -> bool:
        security = SecurityConfig.model_validate(
            {
                "protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
                "token_function": f"{__name__}:{function}",
            }
        )  # fmt: skip
        return await enters(doors.sasl, security.client_options())

    assert await tried("token")
    assert threading.main_thread() not in _threads, "a plain function may block"
    assert await tried("token_of_a_coroutine")
    assert not await tried("no_token")


@pytest.mark.kafka
async def test_a_token_function_that_fails_is_an_error_that_the_kafka_client_tries_again() -> None:
    """Any other one ends its search for the leaders, for ever and without a word."""

    def token() -> str:
        raise RuntimeError("throttled")

    with pytest.raises(KafkaError, match="throttled"):
        await TokenProvider(token).token()


async def test_a_new_connection_uses_the_certificates_that_the_files_have(
    doors: Doors, tmp_path: Path
) -> None:
    """First a certificate that the broker does not trust, then an authority that did not sign."""
    issue(trustme.CA(), tmp_path, "rings.example.org")
    ca_file, password = tmp_path / "ca.pem", tmp_path / "password"
    shutil.copy(doors.ca_file, ca_file)
    password.write_text("first")
    security = SecurityConfig.model_validate(
        {
            "protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "username": "rings",
            "password_file": str(password), "ca_file": str(ca_file),
            "cert_file": str(tmp_path / "cert.pem"), "key_file": str(tmp_path / "key.pem"),
        }
    )  # fmt: skip
    options = security.client_options()
    assert not await enters(doors.tls, options)
    issue(doors.authority, tmp_path, "rings.example.org")
    assert await enters(doors.tls, options)
    trustme.CA().cert_pem.write_to_path(ca_file)
    assert not await enters(doors.tls, options)


@pytest.mark.kafka
@pytest.mark.timeout(600)
async def test_a_running_worker_and_client_take_up_another_password(
    doors: Doors, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("old")
    doors.set_password("shop", "old")
    security = {
        "protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "username": "shop",
        "password_file": str(password),
    }  # fmt: skip
    queues = {"routes": [{"topic": "in", "queue": "orders"}], "queues": {"orders": {}}}
    app = Application(tmp_path / "app", doors.sasl, queues, partitions=1, security=security)
    app.create_topics()
    app.new_worker()
    where: dict[str, Any] = {
        "bootstrap_servers": doors.sasl,
        "application": app.worker_config.application,
        "client_options": WorkerConfig.model_validate(
            {"security": security}
        ).security.client_options(),
    }
    try:
        async with RingProducer(**where) as producer, RingConsumer("orders", **where) as consumer:
            await producer.send("in", "before")
            async with asyncio.timeout(DEADLINE_S):
                await (await consumer.receive()).ack(confirm=True)
            await asyncio.to_thread(doors.set_password, "shop", "new")
            password.write_text("new")
            await asyncio.to_thread(doors.restart)  # all connections are made again
            async with asyncio.timeout(2 * DEADLINE_S):
                await producer.send("in", "after")
                message = await consumer.receive()
                await message.ack(confirm=True)
            assert message.value == b"after"
    finally:
        app.end()


# --- without a broker ----------------------------------------------------------------------------


def test_files_that_are_gone_leave_what_was_read_before(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("first\n")
    found = FilePassword(password)
    password.unlink()
    assert (str(found), found.encode()) == ("first", b"first")
    with pytest.raises(BadCredentials, match="No such file"):
        FilePassword(password)
    issue(trustme.CA(), tmp_path, "rings.example.org")
    context = FileContext(None, tmp_path / "cert.pem", tmp_path / "key.pem")
    before = context._loaded
    (tmp_path / "cert.pem").write_text("half of a certif")
    assert _connected(context) is before
    issue(trustme.CA(), tmp_path, "rings.example.org")
    assert _connected(context) is not before


def _connected(context: FileContext) -> Any:
    import ssl  # noqa: PLC0415 - only here

    made = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="127.0.0.1")
    return made.context


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs token_function"),
        (
            {"sasl_mechanism": "OAUTHBEARER", "token_function": "a:b", "username": "u"},
            "neither user nor password",
        ),
        ({"token_function": "a:b", "username": "u"}, "is for sasl_mechanism OAUTHBEARER"),
        ({"sasl_mechanism": "OAUTHBEARER", "token_function": "a"}, "must be MODULE:FUNCTION"),
    ],
)
def test_a_mistake_names_what_is_needed(fields: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SecurityConfig.model_validate({"protocol": "SASL_SSL", **fields})


@pytest.mark.parametrize("name", ["no_such_module:f", f"{__name__}:nothing", f"{__name__}:scram"])
def test_a_function_that_cannot_be_called_is_named(name: str) -> None:
    fields = {"protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "token_function": name}
    security = SecurityConfig.model_validate(fields)
    with pytest.raises(ConfigError, match=f"{name} is not a function without arguments"):
        security.client_options()
    with pytest.raises(ConfigError, match="Java client cannot call it"):
        security.java_options("kafka.")


def test_msk_gets_a_signed_token_of_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadCredentials, match="AWS_REGION is not set"):
        msk_iam_token()
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    token = msk_iam_token()
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "X-Amz-Credential=AKIDEXAMPLE" in url


def test_the_code_of_the_page_makes_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    for block in blocks((ROOT / "docs" / "kafka-services.md").read_text(), "python"):
        exec(block, names)
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "password").write_text("secret")
    assert isinstance(names["with_a_password"](tmp_path), RingProducer)
    assert isinstance(names["on_msk"](), RingProducer)
    answer = tmp_path / "answer.json"
    answer.write_text('{"access_token": "abc"}')
    for name, value in {"ID": "me", "SECRET": "s", "TOKEN_URL": answer.as_uri()}.items():
        monkeypatch.setenv(name if name == "TOKEN_URL" else f"CLIENT_{name}", value)
    assert names["token"]() == "abc"
