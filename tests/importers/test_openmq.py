"""`ringfaust import openmq`: what properties and imqcmd say, in ringfaust's terms."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.importers.imported import Fields, Imported, Verdict
from ringfaust.importers.openmq import import_openmq
from tests.importers.files import written

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
    *said, default = found.findings
    assert [each.line for each in said] == [*range(2, 14)]
    assert "limits of 10 GiB, 10 MiB a message are not set" in default.text
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
    ("a=1\nnonsense\n", ", line 2: 'nonsense' is neither NAME=VALUE nor imqcmd"),
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
        "tanks": {"max_messages": 4, "when_full": "reject_newest"},
        "pumps": {}, "valves": {}, "pipes": {}, "a;b": {},
    }  # fmt: skip
    (other,) = [each for each in found.findings if "shell" in each.text]
    assert (other.verdict, other.setting) == (Verdict.NONE, "echo")


@pytest.mark.parametrize("name", ["$NAME", "${NAME}", "a-`date`", "$(date)"])
def test_a_name_with_a_variable_is_no_name(name: str, tmp_path: Path) -> None:
    found = of_script(f'imqcmd create dst -t q -n "{name}" -o maxNumMsgs=3', tmp_path)
    assert found.queues == {}
    (finding,) = found.findings
    assert finding.verdict == Verdict.NONE
    assert "the shell would replace" in finding.text


OLDEST = "-o maxNumMsgs=3 -o limitBehavior=REMOVE_OLDEST"
TAKEN = {"max_messages": 3, "when_full": "drop_oldest"}


@pytest.mark.parametrize(("text", "queues"), [
    # B8: options before the command, and what scripts have around it.
    (f"imqcmd -f create dst -t q -n g {OLDEST}", {"g": TAKEN}),
    (f"sleep 4\nimqcmd -f -u admin create dst -t q -n g {OLDEST}", {"g": TAKEN}),
    ("imqcmd -b host:7676 -passfile /run/p create dst -n g", {"g": {}}),
    ("sh /opt/mq/bin/imqcmd create dst -t q -n g", {"g": {}}),
    ("${MQ_HOME}/bin/imqcmd create dst -t q -n g", {"g": {}}),
    ("$MQ/imqcmd create dst -t q -n g\nsudo -E imqcmd create dst -n h", {"g": {}, "h": {}}),
    ("cd /opt\nif [ -x bin/imqcmd ]; then\n  sleep 4\n  sh bin/imqcmd create dst -t q -n g\nfi",
     {"g": {}}),
    ("FROM mq:5\nRUN bin/imqbrokerd & sleep 9 && bin/imqcmd -f create dst -n g", {"g": {}}),
    ('FROM mq:5\nRUN ["bin/imqcmd", "create", "dst", "-n", "g"]', {"g": {}}),
    ("IMQ_HOME=/opt imqcmd create dst \\\n    -n g", {"g": {}}),
    ("until imqcmd list dst; do sleep 1; done\nimqcmd create dst -n g", {"g": {}}),
    ("PASSWORD='open\nsesame'\nimqcmd create dst -n g", {"g": {}}),
    ("echo imqcmd create dst -n g", {}),
    ("imqcmd update dst -t q -n mq.sys.dmq -o maxNumMsgs=5", {}),
    # Without limitBehavior Open MQ refuses the newest; a limit on bytes counts, too.
    ("imqcmd create dst -t q -n g -o maxNumMsgs=3",
     {"g": {"max_messages": 3, "when_full": "reject_newest"}}),
    ("imqcmd create dst -n g -o maxTotalMsgBytes=1k",
     {"g": {"max_bytes": 1024, "when_full": "reject_newest"}}),
    ("imqcmd create dst -n g -o maxNumMsgs=-1", {"g": {"max_messages": -1}}),
    (f"imqcmd create dst -n g\nimqcmd update dst -n g {OLDEST}", {"g": TAKEN}),
])  # fmt: skip
def test_scripts_as_people_write_them(text: str, queues: dict[str, object], tmp_path: Path) -> None:
    found = of_script(text, tmp_path)
    assert found.queues == queues
    said = "\n".join(map(str, found.findings))
    assert "sesame" not in said and "/run/p" not in said


@pytest.mark.parametrize(("text", "most"), [
    ("imq.autocreate.queue.maxNumMsgs 5", 5), ("imq.autocreate.queue.maxNumMsgs\t5", 5),
    ("imq.autocreate.queue.maxNumMsgs : 5", 5), ("imq.autocreate.queue.maxNumMsgs=5 ", 5),
    ("imq.autocreate.destination.\\\n   maxNumMsgs = \\\n   5", 5),
    ("imq.autocreate.queue.max\\u004eumMsgs=5", 5),
    ("! c\r\n\fimq.autocreate.queue.maxNumMsgs=5", 5),
    ("imq.autocreate.destination.maxNumMsgs=5\n#x\\\nimq.log.a", 5),
    ("imq.broker.name=imqcmd-host\nimq.autocreate.destination.maxNumMsgs=6", 6),
    ("imq.instanceconfig.version=\nimq.autocreate.destination.maxNumMsgs=6", 6),
])  # fmt: skip
def test_properties_are_read_as_java_reads_them(text: str, most: int, tmp_path: Path) -> None:
    found = of_script(text, tmp_path)
    assert found.settings == {"#": {"max_messages": most, "when_full": "reject_newest"}}


MAX_SIZE, PER_MESSAGE = "imq.message.max_size=", "imq.autocreate.destination.maxBytesPerMsg="


@pytest.mark.parametrize(("first", "second", "holds", "verdicts"), [
    (f"{PER_MESSAGE}10k", f"{MAX_SIZE}70m", 10240, [Verdict.TAKEN, Verdict.CHANGED]),
    (f"{MAX_SIZE}70m", f"{PER_MESSAGE}10k", 10240, [Verdict.CHANGED, Verdict.TAKEN]),
    (f"{PER_MESSAGE}10m", f"{MAX_SIZE}1m", 1 << 20, [Verdict.CHANGED, Verdict.TAKEN]),
    (f"{PER_MESSAGE}-1", f"{MAX_SIZE}1m", 1 << 20, [Verdict.CHANGED, Verdict.TAKEN]),
    (f"{PER_MESSAGE}-1", f"{MAX_SIZE}-1", -1, [Verdict.TAKEN, Verdict.TAKEN]),
])  # fmt: skip
def test_of_the_limits_of_broker_and_destination_the_smaller_holds(
    first: str, second: str, holds: int, verdicts: list[Verdict], tmp_path: Path
) -> None:
    found = of_script(f"{first}\n{second}\n", tmp_path)
    assert found.settings["#"]["max_message_bytes"] == holds
    assert [each.verdict for each in found.findings if each.line] == verdicts


@pytest.mark.parametrize(("queue", "queues", "addresses", "verdict"), [
    ("false", {}, {"#": {}}, Verdict.TAKEN), ("true", {"#": {}}, {}, Verdict.CHANGED),
])  # fmt: skip
def test_topics_of_unknown_names_are_addresses_unless_these_are_queues(
    queue: str, queues: Fields, addresses: Fields, verdict: Verdict, tmp_path: Path
) -> None:
    text = f"imq.autocreate.topic=true\nimq.autocreate.queue={queue}\n"
    found = of_script(f"{text}imq.autocreate.destination.maxNumMsgs=5\n", tmp_path)
    assert (found.queues, found.addresses) == (queues, addresses)
    assert found.findings[0].verdict is verdict


def test_a_line_that_only_java_takes_for_a_property_is_no_fault(tmp_path: Path) -> None:
    """Open MQ's own default.properties has one."""
    found = of_script("# output channels\n(LogHandlers).\nimq.log.level=INFO\n", tmp_path)
    assert [each.verdict for each in found.findings if each.line] == [Verdict.NONE] * 2


def test_an_instance_that_says_nothing_creates_queues(tmp_path: Path) -> None:
    found = of_script("imq.instanceconfig.version=300\n", tmp_path)
    assert found.queues == {"#": {}}
    (default,) = [each for each in found.findings if not each.line]
    assert default.verdict is Verdict.CHANGED and "100000 messages" in default.text


@pytest.mark.parametrize(("option", "verdict"), [
    ("useDMQ=true", Verdict.TAKEN), ("useDMQ=false", Verdict.NONE),
    ("maxNumProducers=-1", Verdict.TAKEN), ("maxNumProducers=100", Verdict.NONE),
    ("isLocalOnly=false", Verdict.TAKEN), ("localDeliveryPreferred=true", Verdict.NONE),
])  # fmt: skip
def test_what_is_switched_off_is_taken_over(option: str, verdict: Verdict, tmp_path: Path) -> None:
    found = of_script(f"imqcmd create dst -t q -n g -o {option}", tmp_path)
    assert found.findings[-1].verdict is verdict


def test_a_character_may_be_written_as_two_escapes(tmp_path: Path) -> None:
    found = of_script("imq.a=\\ud83d\\ude00\nimq.b=\\ud83d\n", tmp_path)
    assert [each.setting for each in found.findings[:2]] == ["imq.a = \U0001f600", "imq.b = \ufffd"]


def test_a_password_in_the_name_is_not_shown(tmp_path: Path) -> None:
    found = of_script("imq.imqcmd.password{8CF1sesame} x\n", tmp_path)
    assert "sesame" not in "\n".join(map(str, found.findings))


def test_the_options_of_the_dead_message_queue_get_their_lines(tmp_path: Path) -> None:
    found = of_script("imqcmd update dst -t q -n mq.sys.dmq -o maxNumMsgs=5", tmp_path)
    assert [each.verdict for each in found.findings] == [Verdict.CHANGED, Verdict.NONE]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([
    "imqcmd", "create", "dst", "-n", "g", "-o", "maxNumMsgs=3", "'", '"', ";", "&&", "\\\n", "\n",
    "sudo", "=", ":", "imq.autocreate.queue", "$x", "RUN", "[", "#", "!", "limitBehavior=X", "\\",
]), max_size=14))  # fmt: skip
def test_any_file_gives_lines_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    found = written(folder, lambda: of_script(" ".join(words), folder))
    assert found is None or all(each.setting and each.text for each in found.findings)


VALUES = st.sampled_from([
    "1", "-1", "10m", "true", "false", "REMOVE_OLDEST", "FLOW_CONTROL", "x", "99999999999", "",
])  # fmt: skip
LIMITS = ["limitBehavior", "maxNumMsgs", "maxTotalMsgBytes", "maxBytesPerMsg", "useDMQ", "odd",
          "maxNumActiveConsumers", "maxNumBackupConsumers", "isLocalOnly"]  # fmt: skip
PROPERTIES = st.lists(st.tuples(
    st.sampled_from(["imq.autocreate.queue", "imq.autocreate.topic", "imq.message.max_size",
                     "imq.destination.DMQ.truncateBody", "imq.instancename", "imq.\\u00e9",
                     "imq.message.expiration.interval", "imq.\\ud800",
                     *(f"imq.autocreate.destination.{limit}" for limit in LIMITS)]),
    st.sampled_from(["=", " = ", ":", " ", "=\\\n  "]), VALUES,
), max_size=6)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(PROPERTIES)
def test_each_property_has_one_line(
    tmp_path_factory: pytest.TempPathFactory, properties: list[tuple[str, str, str]]
) -> None:
    text = "# comment\n" + "\n".join("".join(each) for each in properties)
    folder = tmp_path_factory.mktemp("any")
    found = written(folder, lambda: of_script(text, folder))
    if found is not None:
        assert sum(bool(each.line) for each in found.findings) == len(properties)


OPTIONS = st.lists(st.tuples(st.sampled_from(LIMITS), VALUES).map("=".join), max_size=3)
COMMANDS = st.lists(st.tuples(
    st.sampled_from(["imqcmd create dst", "imqcmd -f -u admin update dst", "imqcmd list dst",
                     "sudo mq/bin/imqcmd destroy dst", "echo"]),
    st.sampled_from(["a", "b.c", "*", "a::b", "'x y'", "$N", "mq.sys.dmq", "é"]),
    st.sampled_from(["q", "t"]), OPTIONS,
), max_size=4)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(COMMANDS)
def test_each_command_and_each_option_has_one_line(
    tmp_path_factory: pytest.TempPathFactory, commands: list[tuple[str, str, str, list[str]]]
) -> None:
    text = "#!/bin/sh\n" + "".join(
        f"{command} -t {kind} -n {name} {' '.join(f'-o {each}' for each in options)}\n"
        for command, name, kind, options in commands
    )
    folder = tmp_path_factory.mktemp("any")
    found = written(folder, lambda: of_script(text, folder))
    if found is None:
        return
    for number, (_, _, _, options) in enumerate(commands, start=2):
        lines = [each for each in found.findings if each.line == number]
        is_left_out = lines[0].verdict is Verdict.NONE or "it is not declared" in lines[0].text
        assert len(lines) == 1 + (0 if is_left_out else len(options))
