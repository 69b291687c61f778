"""`ringfaust import openmq`: what properties and imqcmd say, in ringfaust's terms."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.importers.imported import Imported, Verdict
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


def of_script(text: str, tmp_path: Path) -> Imported:
    file = tmp_path / "script.sh"
    file.write_text(text)
    return import_openmq(file)


def test_each_command_of_a_line_is_read(tmp_path: Path) -> None:
    found = of_script(
        "imqcmd create dst -t q -o maxNumMsgs=4 -n tanks; imqcmd create dst -t q -n pumps\n"
        "imqcmd create dst -t q -n valves && imqcmd create dst -t q -n pipes || echo failed # one\n"
        "imqcmd create dst -t q -n 'a;b' 2>&1\n",
        tmp_path,
    )
    assert found.queues == {
        "tanks": {"max_messages": 4}, "pumps": {}, "valves": {}, "pipes": {}, "a;b": {},
    }  # fmt: skip
    (other,) = [each for each in found.findings if "shell" in each.text]
    assert (other.verdict, other.setting) == (Verdict.NONE, "echo failed")


@pytest.mark.parametrize("name", ["$NAME", "${NAME}", "a-`date`", "$(date)"])
def test_a_name_with_a_variable_is_no_name(name: str, tmp_path: Path) -> None:
    found = of_script(f'imqcmd create dst -t q -n "{name}" -o maxNumMsgs=3', tmp_path)
    assert found.queues == {}
    (finding,) = found.findings
    assert finding.verdict == Verdict.NONE
    assert "the shell would replace" in finding.text
