"""The deployment files: linters are content, and the configuration in them is valid."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from ringfaust.cli.main import main
from ringfaust.config import QueuesConfig, WorkerConfig
from ringfaust.core.model import HELD_STATES
from ringfaust.kafka.names import worker_group
from tests.deploy.linters import (
    BUNDLE,
    CHART,
    DEPLOY,
    HANDLERS,
    LINTERS,
    MANIFESTS,
    ROOT,
    SCALED,
    SERVICE,
    SPARK_APPLICATIONS,
    Missing,
    render,
)


@pytest.mark.parametrize("name", LINTERS)
def test_the_linter_finds_nothing(name: str) -> None:
    try:
        assert not LINTERS[name]()
    except Missing as missing:
        pytest.skip(str(missing))


def manifests() -> dict[str, Any]:
    return {
        each["kind"]: each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())
    }


def test_the_configuration_of_the_manifests_is_valid() -> None:
    data = manifests()["ConfigMap"]["data"]
    worker = WorkerConfig.model_validate(yaml.safe_load(data["worker.yaml"]))
    QueuesConfig.model_validate(yaml.safe_load(data["queues.yaml"]))
    container = manifests()["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert worker.web.enabled and container["ports"][0]["containerPort"] == worker.web.port


@pytest.mark.parametrize("path", SPARK_APPLICATIONS, ids=lambda path: str(path.name))
def test_the_arguments_of_the_spark_applications_are_valid(path: Path) -> None:
    _parses(yaml.safe_load(path.read_text())["spec"]["arguments"])


def test_the_command_without_the_operator_asks_for_the_same() -> None:
    lake = yaml.safe_load((DEPLOY / "spark" / "lake.yaml").read_text())["spec"]
    text = (ROOT / "docs" / "spark.md").read_text()
    (command,) = re.findall(r"spark-submit --master k8s:.*?(?=\n +```)", text, re.DOTALL)
    assert f"--packages {','.join(lake['deps']['packages'])} " in command
    for name in ("spark.jars.ivy", "spark.pyspark.python"):
        assert f"--conf {name}={lake['sparkConf'][name]} " in command
    assert lake["image"] in command and lake["mainApplicationFile"] in command
    words = command.partition(lake["mainApplicationFile"])[2].split()
    assert "--bootstrap-servers" in words, "it has no worker.yaml"
    _parses(words)


def test_the_parameters_of_the_bundle_are_valid() -> None:
    for job in yaml.safe_load(BUNDLE.read_text())["resources"]["jobs"].values():
        for task in job["tasks"]:
            _parses(task["python_wheel_task"]["parameters"])


def test_the_bundle_installs_what_spark_jobs_need_and_the_runtime_lacks() -> None:
    """A wheel is installed without its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime = ("pyspark", "delta-spark", "matplotlib", "numpy", "pandas", "protobuf", "pyarrow")
    needed = {
        each for each in project["optional-dependencies"]["spark"] if not each.startswith(runtime)
    }
    for job in yaml.safe_load(BUNDLE.read_text())["resources"]["jobs"].values():
        for task in job["tasks"]:
            libraries = task["libraries"]
            found = {each["pypi"]["package"] for each in libraries if "pypi" in each}
            assert found == needed


def _parses(arguments: list[str]) -> None:
    """Fail unless the command line knows the command and its options."""
    command: Any = typer.main.get_command(main)
    while hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context("ringfaust", list(arguments))


def test_keda_scales_what_the_manifests_have_by_what_ringfaust_says() -> None:
    workers, handlers = yaml.safe_load_all(SCALED.read_text())
    data = manifests()["ConfigMap"]["data"]
    worker = WorkerConfig.model_validate(yaml.safe_load(data["worker.yaml"]))
    queues = QueuesConfig.model_validate(yaml.safe_load(data["queues.yaml"]))
    target = workers["spec"]["scaleTargetRef"]
    assert manifests()[target["kind"]]["metadata"]["name"] == target["name"]
    assert workers["spec"]["maxReplicaCount"] == worker.partitions
    lag = [each["metadata"] for each in workers["spec"]["triggers"]]
    assert {each["topic"] for each in lag} == {each.topic for each in queues.routes}
    assert {each["consumerGroup"] for each in lag} == {worker_group(worker.application)}
    assert {each["bootstrapServers"] for each in lag} == {worker.bootstrap_servers}
    app = yaml.safe_load(HANDLERS.read_text())
    assert app["metadata"]["name"] == handlers["spec"]["scaleTargetRef"]["name"]
    assert app["spec"].get("replicas") is None, "it is KEDA's"
    (container,) = app["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["ringfaust"], "the entrypoint of the image is not ours"
    _parses(container["args"])
    (ready,) = [each["metadata"]["query"] for each in handlers["spec"]["triggers"]]
    found = re.fullmatch(r'sum\((\w+)\{queue="(\w+)",state="(\w+)"\}\)', ready)
    assert found is not None
    assert found[1] in (ROOT / "ringfaust" / "worker" / "observe" / "metrics.py").read_text()
    assert found[2] in queues.queues and found[3] in HELD_STATES


@pytest.mark.parametrize(("status", "waits"), [("2", "10\n"), ("1", ""), ("KILL", "")])
def test_the_service_does_not_start_a_worker_each_second_that_refuses_to(
    status: str, waits: str
) -> None:
    (line,) = re.findall("^ExecStopPost=(.*)$", SERVICE.read_text(), re.MULTILINE)
    command = shlex.split(line.replace("$$", "$").replace("sleep", "echo"))
    environment = {"EXIT_STATUS": status}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == waits


def test_the_values_of_the_chart_are_valid() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert WorkerConfig.model_validate(values["worker"]).web.enabled
    assert not values["queues"], "helm adds them, and each of their fields, to those of the user"


def everything_rendered(*options: str) -> list[dict[str, Any]]:
    """What the chart makes of its values."""
    try:
        done = render(*options)
    except Missing as missing:
        pytest.skip(str(missing))
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def hook_of(resource: dict[str, Any]) -> str | None:
    found: dict[str, str] = resource["metadata"].get("annotations", {})
    return found.get("helm.sh/hook")


def rendered(*options: str) -> dict[str, Any]:
    """What the chart installs, by kind."""
    return {each["kind"]: each for each in everything_rendered(*options) if not hook_of(each)}


def before_a_change(*options: str) -> dict[str, Any]:
    """What the chart starts before it changes anything else, by kind."""
    hooks = [each for each in everything_rendered(*options) if hook_of(each)]
    assert {hook_of(each) for each in hooks} == {"pre-upgrade,pre-rollback"}
    return {each["kind"]: each for each in hooks}


def test_another_queue_is_applied_and_restarts_no_worker() -> None:
    other = ("--set", "queues.queues.orders.ring_size=5")
    before, after = rendered(), rendered(*other)
    assert before["ConfigMap"] != after["ConfigMap"]
    assert before["StatefulSet"] == after["StatefulSet"]
    pod = before_a_change(*other)["Job"]["spec"]["template"]
    (apply,) = pod["spec"]["containers"]
    assert apply["args"][0] == "apply" and "--yes" in apply["args"]
    _parses(apply["args"])
    mounted = {each["name"] for each in apply["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["spec"]["volumes"]}
    wanted = after["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    assert not wanted.items() <= pod["metadata"]["labels"].items(), "it counts as a worker"


def files_of(pod: dict[str, Any]) -> str:
    """The ConfigMap from which a pod has its files."""
    (found,) = [each["configMap"]["name"] for each in pod["spec"]["volumes"] if "configMap" in each]
    return str(found)


def test_a_change_is_applied_before_the_workers_get_its_files() -> None:
    """The ConfigMap of the workers is still the one before: the job has the new files itself."""
    other = ("--set", "queues.queues.orders.ring_size=5,worker.failover_after_ms=5000")
    now, first = rendered(*other), before_a_change(*other)
    files, job = first["ConfigMap"], first["Job"]
    assert files_of(job["spec"]["template"]) == files["metadata"]["name"]
    assert files_of(now["StatefulSet"]["spec"]["template"]) == now["ConfigMap"]["metadata"]["name"]
    assert files["metadata"]["name"] != now["ConfigMap"]["metadata"]["name"]
    assert files["data"] == now["ConfigMap"]["data"]
    QueuesConfig.model_validate(yaml.safe_load(files["data"]["queues.yaml"]))
    weights = [
        int(each["metadata"]["annotations"].get("helm.sh/hook-weight", 0)) for each in (files, job)
    ]
    assert weights[0] < weights[1], "the job would wait for its files"
    policy = files["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    assert policy == "before-hook-creation"


def test_another_setting_of_the_worker_restarts_the_workers() -> None:
    before, after = rendered(), rendered("--set", "worker.failover_after_ms=5000")
    assert before["StatefulSet"] != after["StatefulSet"]


def test_a_rolling_update_waits_for_each_worker_and_budget_and_probes_keep_the_others() -> None:
    for found in (manifests(), rendered()):
        workers = found["StatefulSet"]["spec"]
        assert workers.get("updateStrategy", {}).get("type", "RollingUpdate") == "RollingUpdate"
        assert workers["minReadySeconds"] == 5
        (container,) = workers["template"]["spec"]["containers"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_probes_wait_for_the_end_of_a_long_step() -> None:
    for path in (*MANIFESTS, CHART / "templates" / "worker.yaml"):
        text = path.read_text()
        assert re.findall(r"timeoutSeconds: (\d+)", text) == ["5"] * text.count("Probe:"), path


def test_a_service_that_died_is_back_before_others_take_its_partitions() -> None:
    text = SERVICE.read_text()
    wait_s = re.search(r"^RestartSec=(\d+)$", text, re.MULTILINE)
    assert wait_s and int(wait_s[1]) * 1000 < WorkerConfig().failover_after_ms
    assert re.search(r"^StartLimitIntervalSec=0$", text, re.MULTILINE), "it would give up"


def test_a_worker_is_never_root_and_finishes_its_batch() -> None:
    pod = manifests()["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["terminationGracePeriodSeconds"] >= 60
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"]
    unit = SERVICE.read_text()
    assert "DynamicUser=yes" in unit and "ProtectSystem=strict" in unit
    assert "OOMPolicy=continue" in unit, "one of several processes would end all"
