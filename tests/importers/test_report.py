"""`ringfaust import … --report json`: the lines as objects, also when the import is refused."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result
from typer.testing import CliRunner

from generate.schemas import of_output
from ringfaust.cli.main import main

FIXTURES = Path(__file__).with_name("fixtures")
KEYS = ["verdict", "line", "setting", "text"]


def run(kind: str, source: Path, to: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["import", kind, str(source), "--to", str(to), *more])


@pytest.mark.parametrize(("kind", "name"), [
    ("artemis", "shop.xml"), ("rabbitmq", "definitions.json"), ("openmq", "create.sh"),
])  # fmt: skip
def test_the_report_has_an_object_for_each_line(kind: str, name: str, tmp_path: Path) -> None:
    text = run(kind, FIXTURES / name, tmp_path / "text")
    report = run(kind, FIXTURES / name, tmp_path / "json", "--report", "json")
    found = json.loads(report.stdout)
    assert report.exit_code == 0 and (tmp_path / "json" / "queues.yaml").exists()
    jsonschema.validate(found, json.loads(of_output(f"import {kind}")))
    assert all(list(each) == KEYS for each in found)
    lines = text.stdout.splitlines()[:-1]
    assert len(lines) == len(found)
    for line, each in zip(lines, found, strict=True):
        assert line.startswith(each["verdict"]) and line.endswith(each["text"])


@pytest.mark.parametrize(("kind", "text"), [
    ("artemis", "<core><name>n</name><address-settings><address-setting match='a'>"
                "<max-size-bytes>x</max-size-bytes></address-setting></address-settings></core>"),
    ("rabbitmq", '{"queues": [], "rabbit_version": "4", "permissions": 5}'),
    ("openmq", "imq.a=1\nimq.message.max_size=x"),
])  # fmt: skip
@pytest.mark.parametrize("report", ["text", "json"])
def test_what_was_found_is_not_lost_if_the_import_is_refused(
    report: str, kind: str, text: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_text(text)
    done = run(kind, source, tmp_path / "to", "--report", report)
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert not (tmp_path / "to").exists()
    lines = json.loads(done.stdout) if report == "json" else done.stdout.splitlines()
    assert len(lines) == 1
    again = run(kind, FIXTURES / "absent", tmp_path / "to", "--report", report)
    assert again.exit_code == 2 and not again.stdout


def test_what_was_found_is_not_lost_if_files_exist(tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").touch()
    done = run("artemis", FIXTURES / "ring-both.xml", tmp_path, "--report", "json")
    assert done.exit_code == 2 and len(json.loads(done.stdout)) == 4
    assert "exists already" in done.stderr


@pytest.mark.parametrize("kind", ["artemis", "rabbitmq", "openmq"])
def test_what_has_no_size_is_not_read_to_its_end(kind: str, tmp_path: Path) -> None:
    """Such as a pipe: it took all memory."""
    done = run(kind, Path("/dev/zero"), tmp_path / "to")
    assert done.exit_code == 2 and "is larger than 10 MiB" in done.stderr
