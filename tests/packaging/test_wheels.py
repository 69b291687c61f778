"""The three distributions: what each wheel contains, and that it runs with what it asks for."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ringfaust

ROOT = Path(__file__).parents[2]
PROJECTS = {
    "ringfaust": ROOT,
    "ringfaust-client": ROOT / "packages" / "client",
    "ringfaust-spark": ROOT / "packages" / "spark",
}
INSTALLED_CLIENT = {
    "ringfaust-client",
    "aiokafka", "async-timeout", "cramjam", "packaging",
    "pydantic", "annotated-types", "pydantic-core", "typing-extensions", "typing-inspection",
}  # fmt: skip
"""The client, and what aiokafka and pydantic need."""
WORKERS = {"faust-streaming", "mode-streaming", "rocksdict", "aiohttp", "questionary"}
"""Packages that only workers need."""
HEAVY = {
    "faust", "mode", "rocksdict", "aiohttp", "typer", "rich", "yaml", "lark", "jinja2", "pyspark",
    "opentelemetry",
}  # fmt: skip
"""Modules that a program with a client does not load."""
CLIENT = """
import ringfaust.client, ringfaust.client.sync, ringfaust.client.sentences, ringfaust.client.trace
import ringfaust.app.runner
import sys
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
IMPORT_ALL = """
import importlib, sys

wheel, modules, undeclared = sys.argv[1], sys.argv[2].split(), set(sys.argv[3].split())

class Declared:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in undeclared:
            raise ModuleNotFoundError(f"{name} is not declared", name=name)

sys.path.insert(0, wheel)
sys.meta_path.insert(0, Declared())
for module in modules:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        print(module, error.name)
    else:
        assert sys.modules[module].__file__.startswith(wheel), module
"""
USE_CLIENT = """
import asyncio
from ringfaust.client import Admin, NoTopic, RingConsumer, RingProducer, StatusReader
from ringfaust.client.sync import RingConsumer as Blocking

async def main():
    for kind in (RingProducer, Admin, lambda **to: RingConsumer("q", **to)):
        try:
            async with kind(bootstrap_servers="127.0.0.1:1"):
                raise SystemExit("there is no broker")
        except Exception as error:
            print(type(error).__module__.partition(".")[0])

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each distribution."""
    built = {}
    for name, project in PROJECTS.items():
        folder = tmp_path_factory.mktemp(name)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=project, check=True, capture_output=True)
        (built[name],) = folder.glob("*.whl")
    return built


def names_in(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


def modules_in(wheel: Path) -> list[str]:
    files = [name for name in names_in(wheel) if name.endswith(".py")]
    found = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files]
    return sorted(name for name in found if not name.endswith("__main__"))


def project(name: str) -> Any:
    return tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text("utf-8"))["project"]


def needed_by(requirements: Iterable[str]) -> set[str]:
    """All distributions that requirements bring, as they are installed here."""
    found: set[tuple[str, str]] = set()
    left = [(Requirement(each), "") for each in requirements]
    while left:
        requirement, extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in found:
                found.add((name, wanted))
                needs = metadata.requires(name) or []
                left += [(Requirement(each), wanted) for each in needs]
    return {name for name, _ in found}


def undeclared(wheel: Path, folder: Path, requirements: Iterable[str]) -> dict[str, str]:
    """Modules of a wheel that need a module which the requirements do not bring, and which."""
    zipfile.ZipFile(wheel).extractall(folder)
    needed = {"ringfaust", *needed_by(requirements)}
    others = {
        module
        for module, owners in metadata.packages_distributions().items()
        if not needed & {canonicalize_name(owner) for owner in owners}
    }
    arguments = [str(folder), " ".join(modules_in(wheel)), " ".join(others)]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *arguments],
        check=False, capture_output=True, text=True, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("name", ["ringfaust-client", "ringfaust-spark"])
def test_each_module_of_a_small_wheel_runs_with_what_is_declared(
    wheels: dict[str, Path], tmp_path: Path, name: str
) -> None:
    missing = undeclared(wheels[name], tmp_path, project(name)["dependencies"])
    optional = {"ringfaust.core.selector.grammar": "lark"} if name == "ringfaust-client" else {}
    for_faststream = [each for each in missing if each.startswith("ringfaust.faststream")]
    assert {missing.pop(each) for each in for_faststream} <= {"faststream", "anyio"}  # its own
    assert missing == optional


def test_only_what_needs_an_extra_does_not_run_without_it(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    own = project("ringfaust")
    missing = undeclared(wheels["ringfaust"], tmp_path / "without", own["dependencies"])
    assert missing.pop("ringfaust.testing.pytest_plugin") == "pytest"  # which alone loads it
    assert missing.pop("ringfaust.console.oidc") == "authlib"
    assert missing.pop("ringfaust.console.mcp_server") == "mcp"
    rooms = {".".join(module.split(".")[:2]) for module in missing}
    assert rooms <= {"ringfaust.spark", "ringfaust.demo", "ringfaust.cli", "ringfaust.faststream"}
    assert not {"ringfaust.cli.main", "ringfaust.demo", "ringfaust.spark"} & missing.keys()
    extras = own["optional-dependencies"]
    used = [
        each
        for name in ("spark", "top", "demo", "faststream", "mcp", "oidc")
        for each in extras[name]
    ]
    everything = [*own["dependencies"], *used, "pytest"]
    assert not undeclared(wheels["ringfaust"], tmp_path / "with", everything)


def test_spark_needs_nothing_that_only_workers_need() -> None:
    assert not WORKERS & needed_by(project("ringfaust-spark")["dependencies"])


def test_the_client_of_a_checkout_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert not HEAVY & set(done.stdout.split())


def test_the_client_has_no_worker_and_spark_neither_worker_nor_client(
    wheels: dict[str, Path],
) -> None:
    def rooms(name: str) -> set[str]:
        return {each.split("/")[1] for each in names_in(wheels[name]) if each.count("/") > 1}

    assert not rooms("ringfaust-client") & {"worker", "spark", "console", "cli", "kafka", "config"}
    assert not rooms("ringfaust-spark") & {"worker", "client", "console", "demo", "testing"}
    assert rooms("ringfaust") >= rooms("ringfaust-client") | rooms("ringfaust-spark")


@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_is_for_every_platform_or_compiled_and_has_types_and_licence(
    wheels: dict[str, Path], name: str
) -> None:
    names = names_in(wheels[name])
    is_compiled = name != "ringfaust-client" and bool(ringfaust.compiled.build_kind())
    assert wheels[name].name.endswith("-py3-none-any.whl") is not is_compiled
    assert any(each.startswith("ringfaust/_compiled/") for each in names) is is_compiled
    assert wheels[name].name.split("-")[1] == ringfaust.__version__
    assert "ringfaust/py.typed" in names
    (licence,) = (each for each in names if each.endswith("licenses/LICENSE"))
    assert zipfile.ZipFile(wheels[name]).read(licence) == (ROOT / "LICENSE").read_bytes()
    roots = {each.split("/")[0] for each in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"ringfaust"}


@pytest.mark.parametrize("name", ["ringfaust", "ringfaust-spark"])
@pytest.mark.parametrize("kind", ["topics", "config"])
def test_the_defaults_are_the_checkouts_own_files(
    wheels: dict[str, Path], name: str, kind: str
) -> None:
    own = {path.name: path.read_bytes() for path in (ROOT / kind).iterdir()}
    inside, wheel = f"ringfaust/defaults/{kind}/", zipfile.ZipFile(wheels[name])
    packed = {
        each.removeprefix(inside): wheel.read(each)
        for each in wheel.namelist()
        if each.startswith(inside)
    }
    assert packed == own
    assert "ringfaust/java/kafka-broker.lock" in wheel.namelist()


def asked(name: str, *extras: str) -> dict[str, Requirement]:
    """What a distribution asks for, by name, with these extras."""
    own = project(name)
    found = [own["dependencies"], *(own["optional-dependencies"][extra] for extra in extras)]
    return {canonicalize_name(r.name): r for r in map(Requirement, sum(found, []))}


def test_all_distributions_ask_for_the_same_releases() -> None:
    everything = asked("ringfaust", "faststream", "otel", "spark")
    for own in (asked("ringfaust-client", "faststream", "otel"), asked("ringfaust-spark")):
        assert own == {name: everything[name] for name in own}
    assert (
        asked("ringfaust-spark").keys()
        >= asked("ringfaust", "spark").keys() - asked("ringfaust").keys()
    )


def in_an_empty_environment(wheel: Path, folder: Path) -> tuple[Path, set[str]]:
    """Install a wheel from the registry, with our pins. Returns Python, and what is installed."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    constraints = str(ROOT / "constraints.txt")
    subprocess.run([*pip, "install", "--quiet", "-c", constraints, str(wheel)], check=True)
    listed = subprocess.run(
        [*pip, "list", "--format", "freeze"], check=True, capture_output=True, text=True
    ).stdout
    return python, {canonicalize_name(line.partition("==")[0]) for line in listed.split()}


@pytest.mark.slow
def test_in_an_empty_environment_the_client_works(wheels: dict[str, Path], tmp_path: Path) -> None:
    python, names = in_an_empty_environment(wheels["ringfaust-client"], tmp_path / "venv")
    assert names - {"pip", "setuptools"} == INSTALLED_CLIENT
    used = subprocess.run(
        [str(python), "-c", USE_CLIENT], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert used.returncode == 0, used.stderr
    assert set(used.stdout.split()) <= {"ringfaust", "aiokafka"}


@pytest.mark.slow
def test_in_an_empty_environment_spark_commands_work(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    python, names = in_an_empty_environment(wheels["ringfaust-spark"], tmp_path / "venv")
    assert not WORKERS & names
    program = str(python.with_name("ringfaust"))
    help_ = subprocess.run([program, "spark", "--help"], check=True, capture_output=True, text=True)
    assert "move-to-worker" in help_.stdout
    refused = subprocess.run(
        [
            program, "spark", "redrive", "--from", "dead", "--lake", str(tmp_path), "--where",
            "true", "--dry-run",
        ],
        check=False, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert refused.returncode == 2, refused.stderr
    assert "\nringfaust: " in refused.stderr, "below what Java prints"
    assert "Traceback" not in refused.stderr
