"""ringfaust-client: the client alone, without Faust, RocksDB and the command line."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ringfaust

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "packages" / "client"
INSTALLED = {
    "ringfaust-client",
    "aiokafka", "async-timeout", "cramjam", "packaging",
    "pydantic", "annotated-types", "pydantic-core", "typing-extensions", "typing-inspection",
}  # fmt: skip
"""The client, and what aiokafka and pydantic need."""

HEAVY = {
    "faust", "mode", "rocksdict", "aiohttp", "typer", "rich", "yaml", "lark", "jinja2", "pyspark",
    "opentelemetry",
}  # fmt: skip
MODULES = """
import ringfaust.client, ringfaust.client.sync, ringfaust.client.sentences, ringfaust.client.trace
import sys
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
USE = """
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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=CLIENT, check=True, capture_output=True)
    (path,) = folder.glob("ringfaust_client-*.whl")
    return path


def test_the_client_of_a_checkout_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODULES], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert not HEAVY & set(done.stdout.split())


def test_the_wheel_is_complete_by_itself(wheel: Path, tmp_path: Path) -> None:
    """Every module of ours that a module of the client names is in the wheel."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for path in (tmp_path / "ringfaust" / "client").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = node.module if isinstance(node, ast.ImportFrom) else None
            if name and name.startswith("ringfaust"):
                place = tmp_path.joinpath(*name.split("."))
                assert place.is_dir() or place.with_suffix(".py").exists(), (path.name, name)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{MODULES}\n"
    code += "print(ringfaust.__file__, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert str(tmp_path) in done.stderr


def test_the_client_asks_for_the_same_releases_as_the_worker() -> None:
    def asked(path: Path) -> dict[str, Requirement]:
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        found = [*project["dependencies"], *project["optional-dependencies"]["otel"]]
        return {canonicalize_name(each.name): each for each in map(Requirement, found)}

    worker, client = asked(ROOT / "pyproject.toml"), asked(CLIENT / "pyproject.toml")
    assert client.keys() <= worker.keys()
    assert client == {name: worker[name] for name in client}


def test_both_wheels_have_one_version(wheel: Path) -> None:
    assert wheel.name.split("-")[1] == ringfaust.__version__


@pytest.mark.slow
def test_in_an_empty_environment_the_client_works(wheel: Path, tmp_path: Path) -> None:
    """It installs from the registry, with the pins of constraints.txt."""
    if shutil.which("pip") is None and not (Path(sys.executable).parent / "pip").exists():
        pytest.skip("pip is not installed")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    constraints = str(ROOT / "constraints.txt")
    subprocess.run([*pip, "install", "--quiet", "-c", constraints, str(wheel)], check=True)
    listed = subprocess.run(
        [*pip, "list", "--format", "freeze"], check=True, capture_output=True, text=True
    ).stdout
    names = {canonicalize_name(line.partition("==")[0]) for line in listed.split()}
    assert names - {"pip", "setuptools"} == INSTALLED
    used = subprocess.run(
        [str(python), "-c", USE], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert used.returncode == 0, used.stderr
    assert set(used.stdout.split()) <= {"ringfaust", "aiokafka"}
