"""compose/: a broker and a worker, Spark, and a cluster; published on loopback only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringfaust.config import load_worker

COMPOSE = Path(__file__).parents[2] / "compose"
FILE = COMPOSE / "docker-compose.yaml"
SPARK = COMPOSE / "spark.yaml"
CLUSTER = COMPOSE / "cluster.yaml"


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))["services"]
    return found


@pytest.fixture
def cluster() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(CLUSTER.read_text("utf-8"))["services"]
    return found


@pytest.mark.parametrize(
    "files", [[FILE], [FILE, SPARK], [CLUSTER]], ids=["worker", "spark", "cluster"]
)
def test_docker_compose_accepts_the_files(files: list[Path]) -> None:
    command = shutil.which("docker-compose")
    if command is None:
        pytest.skip("docker-compose is not installed; the other tests read the file as YAML")
    named = [part for file in files for part in ("-f", str(file))]
    done = subprocess.run(
        [command, *named, "config", "-q"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_worker_waits_for_the_broker_and_its_topics(services: dict[str, Any]) -> None:
    worker, topics, broker = services["worker"], services["topics"], services["broker"]
    assert worker["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}
    assert topics["depends_on"] == {"broker": {"condition": "service_healthy"}}
    assert topics["command"][:2] == ["topics", "create"]
    assert broker["healthcheck"]["test"]
    for service in (worker, topics):
        address = service["command"][service["command"].index("--bootstrap-servers") + 1]
        assert f"INSIDE://{address}" in broker["environment"]["KAFKA_ADVERTISED_LISTENERS"]


@pytest.mark.parametrize("path", [FILE, CLUSTER], ids=["worker", "cluster"])
def test_nothing_is_published_beyond_loopback(path: Path) -> None:
    services = yaml.safe_load(path.read_text("utf-8"))["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert not any("network_mode" in service for service in services.values())


def test_state_survives_in_volumes(services: dict[str, Any]) -> None:
    dockerfile = (COMPOSE / "Dockerfile").read_text("utf-8")
    volume, folder = services["worker"]["volumes"][0].split(":")
    assert volume in yaml.safe_load(FILE.read_text("utf-8"))["volumes"]
    assert f"VOLUME {folder}" in dockerfile
    assert folder in services["worker"]["command"]
    logs = services["broker"]["environment"]["KAFKA_LOG_DIRS"]
    assert services["broker"]["volumes"] == [f"topics:{logs}"]


def test_the_build_uses_files_that_exist(services: dict[str, Any]) -> None:
    build = services["topics"]["build"]
    assert services["topics"]["image"] == services["worker"]["image"]
    context = (COMPOSE / build["context"]).resolve()
    assert (context / build["dockerfile"]).is_file()
    assert (context / "constraints.txt").is_file()


def test_spark_services_run_commands_that_exist(services: dict[str, Any]) -> None:
    spark = yaml.safe_load(SPARK.read_text("utf-8"))["services"]
    for name in ("rings", "lake"):
        program, *words = spark[name]["command"]
        known = subprocess.run(
            [sys.executable, "-m", program, *words[:2], "--help"],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        ).stdout
        for word in words[2:]:
            assert word.partition("=")[0] in known
        assert f"--bootstrap-servers={services['worker']['command'][2]}" in words
    assert (COMPOSE / spark["spark-master"]["build"]["dockerfile"]).name == "Dockerfile.spark"
    assert not any("ports" in service for service in spark.values())


def test_the_settings_of_the_cluster_are_valid_and_fit_its_brokers(
    cluster: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, workers = cluster["topics"], [cluster["worker-1"], cluster["worker-2"]]
    for service in (topics, *workers):
        for name, text in service["environment"].items():
            monkeypatch.setenv(name, text)
        worker = load_worker()
        assert worker.web.enabled and worker.web.bind == "0.0.0.0"
    brokers = [f"broker-{number}" for number in (1, 2, 3)]
    assert worker.bootstrap_servers == ",".join(f"{name}:19092" for name in brokers)
    assert set(topics["depends_on"]) == set(brokers)
    listeners = [cluster[each]["environment"]["KAFKA_ADVERTISED_LISTENERS"] for each in brokers]
    for name, ports, own in zip(brokers, ("9092", "9093", "9094"), listeners, strict=True):
        assert own == f"INSIDE://{name}:19092,HOST://localhost:{ports}"
    assert len({each["volumes"][0] for each in workers}) == 2
    assert str(worker.data_dir) == workers[0]["volumes"][0].partition(":")[2]


def test_prometheus_and_grafana_use_files_that_exist(cluster: dict[str, Any]) -> None:
    for name in ("prometheus", "grafana"):
        for volume in cluster[name]["volumes"]:
            here = volume.split(":")[0]
            assert not here.startswith(".") or (COMPOSE / here).exists()
    scraped = yaml.safe_load((COMPOSE / "prometheus-cluster.yaml").read_text("utf-8"))
    for job in scraped["scrape_configs"]:
        targets = job["static_configs"][0]["targets"]
        assert targets == ["worker-1:6066", "worker-2:6066"]
        assert all(each.partition(":")[0] in cluster for each in targets)


def test_nobody_can_change_the_dashboard(cluster: dict[str, Any]) -> None:
    """Grafana has a user admin with a known password."""
    environment = cluster["grafana"]["environment"]
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false", "a form is not the only way to log in"


def test_a_worker_of_spark_runs_both_jobs_without_being_root() -> None:
    """By default it writes to SPARK_HOME, which is root's, and the first job has all its cores."""
    spark = yaml.safe_load(SPARK.read_text("utf-8"))["services"]
    assert re.search(r"^USER (?!0\b)", (COMPOSE / "Dockerfile.spark").read_text("utf-8"), re.M)
    worker = spark["spark-worker"]["command"][-1].split()
    assert worker[worker.index("--work-dir") + 1].startswith("/tmp/")
    cores = int(worker[worker.index("--cores") + 1])
    jobs = [spark[name]["command"] for name in ("rings", "lake")]
    asked = [re.findall(r"--conf=spark\.cores\.max=(\d+)", " ".join(job)) for job in jobs]
    assert sum(int(each) for (each,) in asked) <= cores


@pytest.mark.parametrize("path", [FILE, CLUSTER, SPARK], ids=["worker", "cluster", "spark"])
def test_what_runs_ringfaust_has_a_minute_to_stop(path: Path) -> None:
    for name, service in yaml.safe_load(path.read_text("utf-8"))["services"].items():
        if service.get("image", "").startswith("ringfaust") and name != "topics":
            assert service["stop_grace_period"] == "60s" and service["init"], name
