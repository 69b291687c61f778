"""TLS with client certificates, and SASL, before a real broker that asks for them.

Worker, client and Spark.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from pyspark.sql import SparkSession

from ringfaust.client import RingConsumer, RingProducer
from ringfaust.testing.broker import EmbeddedBroker
from ringfaust.testing.process import WorkerProcess
from tests.spark.shared_session import run_command

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PASSWORD = 'ä "quoted\\ one;'
MESSAGES = 5
_SECURED = """
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},\
SASL_SSL://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={keys}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.sasl_ssl.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_rings={password};
"""


class SecuredBroker(EmbeddedBroker):
    """It has a second door, with a lock."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        authority = trustme.CA()
        self.ca_file = folder / "ca.pem"
        authority.cert_pem.write_to_path(self.ca_file)
        _, self._keys = _issue(authority, folder / "broker", "127.0.0.1")
        self.cert_file, self.key_file = _issue(authority, folder / "client", "rings.example.org")
        self._secured_port = self._port + 1

    @property
    def secured(self) -> str:
        return f"127.0.0.1:{self._secured_port}"

    def _write_properties(self, data_dir: Path) -> Path:
        """Of two lines with one name the last counts."""
        path = super()._write_properties(data_dir)
        text = _SECURED.format(
            plain=self._port,
            controller=self._controller_port,
            port=self._secured_port,
            keys=self._keys,
            ca=self.ca_file,
            password=_as_property(json.dumps(PASSWORD, ensure_ascii=False)),
        )
        path.write_text(path.read_text("utf-8") + text, "utf-8")
        return path


def _issue(authority: trustme.CA, folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate, and a file with its key before it, as Java wants it."""
    issued = authority.issue_cert(name)
    pem = issued.private_key_pem.bytes()
    key = serialization.load_pem_private_key(pem, password=None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    folder.mkdir()
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(chain)
    key_file.write_bytes(key + chain)
    return cert_file, key_file


def _as_property(text: str) -> str:
    """As Java reads it from a file of properties."""
    text = text.replace("\\", "\\\\")
    return "".join(char if char.isascii() else f"\\u{ord(char):04x}" for char in text)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("keys")) as broker:
        yield broker


@pytest.fixture
def config(secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What names the locked door, and where the password is."""
    monkeypatch.setenv("RINGS_PASSWORD", PASSWORD)
    security = {
        "protocol": "SASL_SSL",
        "ca_file": str(secured.ca_file),
        "cert_file": str(secured.cert_file),
        "key_file": str(secured.key_file),
        "username": "rings",
        "password_env": "RINGS_PASSWORD",
    }
    worker = {"application": "locked", "bootstrap_servers": secured.secured, "security": security}
    queues = {
        "routes": [{"topic": "orders", "queue": "orders"}],
        "queues": {"orders": {"ring_size": 3}},
    }
    (tmp_path / "worker.yaml").write_text(
        json.dumps(worker | {"partitions": 1, "data_dir": str(tmp_path / "data")})
    )
    (tmp_path / "queues.yaml").write_text(json.dumps(queues))
    return tmp_path


def run(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command to its end; what it prints never has the password."""
    done = subprocess.run(
        [sys.executable, "-m", "ringfaust", *arguments, "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert PASSWORD not in done.stdout + done.stderr
    return done


async def send_and_take(secured: SecuredBroker) -> list[bytes | None]:
    """More than the ring holds; what a consumer then gets."""
    context = ssl.create_default_context(cafile=secured.ca_file)
    context.load_cert_chain(secured.cert_file, secured.key_file)
    options: dict[str, Any] = {
        "bootstrap_servers": secured.secured,
        "application": "locked",
        "client_options": {
            "security_protocol": "SASL_SSL",
            "ssl_context": context,
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "rings",
            "sasl_plain_password": PASSWORD,
        },
    }
    async with RingProducer(**options) as producer:
        for number in range(MESSAGES):
            await producer.send("orders", b"%d" % number)
    taken = []
    async with RingConsumer("orders", **options) as consumer:
        async for message in consumer:
            taken.append(message.value)
            await message.ack()
            if message.value == b"%d" % (MESSAGES - 1):
                return taken
    raise AssertionError("the consumer ended")


def test_worker_client_and_audit_work_with_tls_and_a_password(
    spark: SparkSession, secured: SecuredBroker, config: Path
) -> None:
    for _ in range(3):  # the first handshake of a cold broker may take longer than a command waits
        if (made := run(config, "topics", "create")).returncode == 0:
            break
    assert made.returncode == 0, made.stderr
    log = config / "worker.log"
    worker = WorkerProcess(config, log)
    worker.start()
    try:
        taken = asyncio.run(send_and_take(secured))
    finally:
        worker.stop()
    assert PASSWORD not in log.read_text("utf-8")
    assert taken[-1] == b"%d" % (MESSAGES - 1)
    audited = run_command(spark, "spark", "audit", "--json", "--config", str(config))
    assert audited.exit_code == 0, audited.output
    assert PASSWORD not in audited.output
    verdict = json.loads(audited.stdout.splitlines()[0])
    assert (verdict["balanced"], verdict["inputs"]) == (True, MESSAGES)


def test_a_wrong_password_is_reported_without_a_traceback(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGS_PASSWORD", PASSWORD + "x")
    refused = run(config, "topics", "create")
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert "password" in refused.stderr


def test_a_missing_client_certificate_is_refused(config: Path) -> None:
    worker = json.loads((config / "worker.yaml").read_text())
    for name in ("cert_file", "key_file"):
        del worker["security"][name]
    (config / "worker.yaml").write_text(json.dumps(worker))
    refused = run(config, "topics", "create")
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert "and no client certificate: it hangs, or `security` is wrong" in refused.stderr
