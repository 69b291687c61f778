"""`ringfaust import openmq`: what properties and imqcmd say, in ringfaust's terms."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.importers.imported import Verdict
from ringfaust.importers.openmq import import_openmq

FIXTURES = Path(__file__).with_name("fixtures")


def test_properties_become_settings_of_every_queue() -> None:
    found = import_openmq(FIXTURES / "config.properties")
    assert found.queues == {"#": {}}
    assert found.settings == {
        "#": {
            "max_messages": 1000, "when_full": "drop_oldest", "max_active_consumers": 2,
            "max_backup_consumers": 1, "max_message_bytes": 70 << 20,
        }
    }  # fmt: skip
    assert [each.line for each in found.findings] == [*range(2, 14)]
    said = "\n".join(map(str, found.findings))
    assert "topsecret" not in said and "imq.log.file.dirpath" in said


def test_commands_become_queues_and_addresses() -> None:
    found = import_openmq(FIXTURES / "create.sh")
    assert found.queues == {
        "readings": {"max_messages": 3, "when_full": "drop_oldest"},
        "alarms": {"max_messages": 2, "when_full": "drop_lowest_priority"},
    }
    assert found.addresses == {"prices": {}}
    assert found.settings == {
        "prices": {"max_messages": 500, "when_full": "block", "max_bytes": 10 << 20}
    }
    restart = found.findings[-1]
    assert (restart.verdict, restart.setting) == (Verdict.NONE, "imqcmd restart bkr")


@pytest.mark.parametrize("name", ["config.properties", "create.sh"])
def test_what_is_written_is_a_valid_configuration(name: str, tmp_path: Path) -> None:
    to = str(tmp_path / "to")
    done = CliRunner().invoke(main, ["import", "openmq", str(FIXTURES / name), "--to", to])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(main, ["config", "check", "--config", to]).exit_code == 0


@pytest.mark.parametrize(("text", "says"), [
    ("imq.a=1\nnonsense\n", ", line 2: 'nonsense' is neither NAME=VALUE nor imqcmd"),
    ("imq.autocreate.queue.limitBehavior=DROP", ", line 1: limitBehavior = 'DROP' is none of"),
    ("imq.message.max_size=big", ", line 1: maxBytesPerMsg = 'big' is not a number"),
    ("imqcmd create dst -n 'a", ", line 1: imqcmd: No closing quotation"),
    ("a=1\n\0", ", line 2: is not text"),
])  # fmt: skip
def test_a_broken_file_gives_one_sentence(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "config.properties"
    path.write_text(text)
    done = CliRunner().invoke(main, ["import", "openmq", str(path), "--to", str(tmp_path / "x")])
    assert done.exit_code == 2 and says in done.stderr
    assert done.stderr.count("\n") == 1
