"""Scripts with imqcmd as people write them: variables, wrappers, heredocs, what is undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringfaust.importers.imported import ImportFinding, Verdict
from ringfaust.importers.write import write
from tests.importers.test_openmq import of_script

CREATE = "create dst -t q -n a"


@pytest.mark.parametrize("text", [
    'imqcmd -passfile "$PASS" create dst -t q -n a', f"imqcmd -u $USER -b ${{HOST}}:7676 {CREATE}",
    f"imqcmd {CREATE} -passfile `pwd`/p", f"imqcmd {CREATE} -f -rtm $TIME -b $(hostname):7676",
    f"imqcmd -passfile $HOME/p -u=$USER {CREATE}",
])  # fmt: skip
def test_a_variable_in_the_connection_does_not_lose_the_queue(text: str, tmp_path: Path) -> None:
    found = of_script(text, tmp_path)
    assert found.queues == {"a": {}}
    assert [each.verdict for each in found.findings] == [Verdict.TAKEN]


@pytest.mark.parametrize("text", [f"imqcmd $AUTH {CREATE}", f'imqcmd {CREATE} "$@"'])
def test_a_variable_alone_may_be_any_option(text: str, tmp_path: Path) -> None:
    found = of_script(text, tmp_path)
    assert found.queues == {"a": {}}
    (line,) = found.findings
    assert (line.verdict, "is not known here" in line.text) == (Verdict.CHANGED, True)


def test_a_variable_in_an_option_loses_that_option(tmp_path: Path) -> None:
    found = of_script(f"imqcmd {CREATE} -o maxNumMsgs=$MAX -o maxBytesPerMsg=9", tmp_path)
    assert found.queues == {"a": {"max_message_bytes": 9}}
    verdicts = [each.verdict for each in found.findings]
    assert verdicts == [Verdict.TAKEN, Verdict.NONE, Verdict.TAKEN]


@pytest.mark.parametrize("text", [
    f"docker exec -it mq imqcmd {CREATE}", f"timeout 5 imqcmd {CREATE}",
    f"docker compose exec -T mq /opt/mq/bin/imqcmd {CREATE}",
    f"kubectl exec mq-0 -- imqcmd {CREATE}",
    f"sudo timeout -k 9 5 docker exec mq imqcmd {CREATE}", f"su - mq -c 'imqcmd {CREATE}'",
    f'bash -c "sleep 4; imqcmd {CREATE}"', f"ssh mq@host imqcmd {CREATE}",
    f"nice -n 5 imqcmd {CREATE}",
    f"RUN sh -c 'imqcmd {CREATE}'", f"docker exec mq bash -lc 'imqcmd {CREATE}'",
    f'CMD ["sh", "-c", "imqcmd {CREATE}"]', f"bash <<EOF\nimqcmd {CREATE}\nEOF",
    f"RUN <<'EOF'\nimqcmd {CREATE}\nEOF", f"docker exec -i mq sh <<-END\n\timqcmd {CREATE}\n\tEND",
])  # fmt: skip
def test_what_runs_another_command(text: str, tmp_path: Path) -> None:
    assert of_script(text, tmp_path).queues == {"a": {}}


@pytest.mark.parametrize("text", [
    f"cat > x.sh <<EOF\nimqcmd {CREATE}\nEOF", f"cat <<'EOF'\nusage: don't imqcmd {CREATE}\nEOF",
    f"logger imqcmd {CREATE}", f"docker exec mq echo imqcmd {CREATE}", f"# imqcmd {CREATE}",
])  # fmt: skip
def test_what_only_names_a_command(text: str, tmp_path: Path) -> None:
    found = of_script(f"{text}\nimqcmd create dst -n b # don't\n", tmp_path)
    assert found.queues == {"b": {}}
    assert all(each.verdict is Verdict.NONE for each in found.findings[:-1])


@pytest.mark.parametrize("text", [
    f"CMD=/opt/mq/bin/imqcmd\n$CMD {CREATE}", f'X="$MQ/imqcmd -u admin"\nsudo ${{X}} {CREATE}',
    f"#!/bin/sh\n. ./env\n$IMQCMD {CREATE}", f"#!/bin/sh\n\"${{MY_IMQ_CMD}}\" -f {CREATE}",
    f"export CMD='imqcmd' ; $CMD {CREATE}",
])  # fmt: skip
def test_a_variable_may_hold_the_command(text: str, tmp_path: Path) -> None:
    assert of_script(text, tmp_path).queues == {"a": {}}


def test_another_variable_is_not_the_command(tmp_path: Path) -> None:
    found = of_script(f"#!/bin/sh\nCMD=imqcmd\n$CMDX {CREATE}\n$TOOL {CREATE}\n", tmp_path)
    assert not found.queues and len(found.findings) == 3


def test_a_heredoc_has_a_line_if_it_names_imqcmd(tmp_path: Path) -> None:
    found = of_script(f"cat > x.sh <<EOF\nimqcmd {CREATE}\nEOF\nimqcmd list dst", tmp_path)
    assert [each.line for each in found.findings] == [1, 2, 4]
    assert "a file of its own" in found.findings[1].text


@pytest.mark.parametrize(("text", "name"), [
    ("imqcmd create dst -n a#b", "a#b"), ("imqcmd create dst -n 'a #b' # c", "a #b"),
    ("imqcmd create dst -n a\\ b;# c", "a b"), ("imqcmd create dst -n grün", "grün"),
    ("imqcmd create dst -n a#b#c&&echo '#'", "a#b#c"),
])  # fmt: skip
def test_a_name_is_what_the_shell_makes_of_it(text: str, name: str, tmp_path: Path) -> None:
    assert of_script(text, tmp_path).findings[0].setting == f"destination {name}"


def lines(found: list[ImportFinding]) -> list[tuple[int, Verdict]]:
    return [(each.line, each.verdict) for each in found if each.line]


def test_what_is_destroyed_is_not_declared(tmp_path: Path) -> None:
    found = of_script(
        f"imqcmd {CREATE} -o maxNumMsgs=3\nimqcmd create dst -t t -n a\n"
        "imqcmd -f destroy dst -t q -n a\nimqcmd destroy dst -t t -n other\n",
        tmp_path,
    )
    assert (found.queues, found.addresses) == ({}, {"a": {}})
    assert lines(found.findings) == [
        (1, Verdict.NONE), (2, Verdict.TAKEN), (3, Verdict.TAKEN), (4, Verdict.NONE),
    ]  # fmt: skip
    assert "line 3 destroys it" in found.findings[0].text


def test_what_is_created_again_has_its_last_settings(tmp_path: Path) -> None:
    text = f"imqcmd {CREATE} -o maxNumMsgs=3\nimqcmd destroy dst -t q -n a\nimqcmd {CREATE}\n"
    assert of_script(text, tmp_path).queues == {"a": {}}


def test_of_one_option_the_last_counts(tmp_path: Path) -> None:
    found = of_script(
        f"imqcmd {CREATE} -o maxNumMsgs=3\nimqcmd update dst -t q -n a -o maxNumMsgs=5\n", tmp_path
    )
    assert found.queues["a"]["max_messages"] == 5
    assert lines(found.findings) == [
        (1, Verdict.TAKEN), (1, Verdict.NONE), (2, Verdict.TAKEN), (2, Verdict.TAKEN),
    ]  # fmt: skip
    assert "line 2 sets it again" in found.findings[1].text


def test_of_one_property_the_last_counts(tmp_path: Path) -> None:
    size = "imq.message.max_size"
    found = of_script(f"{size}=5\nimq.log.level=INFO\n{size}=7\n", tmp_path)
    assert found.settings["#"] == {"max_message_bytes": 7}
    assert lines(found.findings) == [(1, Verdict.NONE), (2, Verdict.NONE), (3, Verdict.TAKEN)]
    assert "line 3 sets it again" in found.findings[0].text


def test_the_options_of_the_broker_are_properties(tmp_path: Path) -> None:
    found = of_script(
        "imqcmd update bkr -b $HOST:7676 -o imq.autocreate.queue=false -o imq.message.max_size=1m\n"
        "imqcmd update bkr -o imq.autocreate.queue=true\nimqcmd create dst -t q -n a\n",
        tmp_path,
    )
    assert found.queues == {"a": {}, "#": {}}
    assert found.settings == {"#": {"max_message_bytes": 1 << 20}}
    assert lines(found.findings) == [
        (1, Verdict.NONE), (1, Verdict.TAKEN), (2, Verdict.TAKEN), (3, Verdict.TAKEN),
    ]  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
def test_a_queue_and_a_topic_of_one_name_are_two(turned: bool, tmp_path: Path) -> None:
    given = [f"imqcmd {CREATE} -o maxNumMsgs=3\n", "imqcmd create dst -t t -n a -o maxNumMsgs=5\n"]
    found = of_script("".join(given[::-1] if turned else given), tmp_path)
    assert found.queues["a"]["max_messages"] == 3 and found.addresses == {"a-topic": {}}
    assert found.settings["a-topic"]["max_messages"] == 5
    (line,) = [each for each in found.findings if "address a-topic" in each.text]
    assert (line.verdict, "a is a queue" in line.text) == (Verdict.CHANGED, True)
    write(found, tmp_path / "to")


def test_what_exists_is_not_created_again(tmp_path: Path) -> None:
    """Open MQ refuses the second, so its settings do not hold (DestinationList.java)."""
    found = of_script(
        f"imqcmd {CREATE} -o maxNumMsgs=3\nimqcmd {CREATE} -o maxNumMsgs=5 -o maxBytesPerMsg=9\n",
        tmp_path,
    )
    assert found.queues["a"] == {"max_messages": 3, "when_full": "reject_newest"}
    assert lines(found.findings) == [(1, Verdict.TAKEN), (1, Verdict.TAKEN), (2, Verdict.NONE)]
    assert "exists since line 1" in found.findings[2].text


@pytest.mark.parametrize("text", [
    f"echo 'usage:\nimqcmd {CREATE}\n'", f'HELP="\n  imqcmd {CREATE}\n  it\'s so"\n',
    f"sh -c 'sleep 4\nimqcmd {CREATE}'",
])  # fmt: skip
def test_a_text_may_have_several_lines(text: str, tmp_path: Path) -> None:
    found = of_script(f"{text}\nimqcmd create dst -n b", tmp_path)
    assert set(found.queues) == ({"a", "b"} if text.startswith("sh") else {"b"})


@pytest.mark.parametrize(("options", "fields"), [
    ("", {"max_messages": -1, "when_full": "drop_oldest", "max_message_bytes": 1 << 20}),
    ("-o maxNumMsgs=3 -o maxBytesPerMsg=2m",
     {"max_messages": 3, "when_full": "reject_newest", "max_message_bytes": 1 << 20}),
    ("-o maxNumMsgs=0 -o maxBytesPerMsg=9",
     {"max_messages": -1, "when_full": "drop_oldest", "max_message_bytes": 9}),
])  # fmt: skip
def test_what_is_for_automatic_destinations_is_for_no_other(
    options: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    automatic = "imq.autocreate.destination"
    found = of_script(
        f"imqcmd update bkr -o {automatic}.maxNumMsgs=5 -o imq.message.max_size=1m\n"
        f"imqcmd update bkr -o {automatic}.limitBehavior=REMOVE_OLDEST\n"
        f"imqcmd update bkr -o {automatic}.maxBytesPerMsg=5k\n"
        f"imqcmd {CREATE} {options}\n",
        tmp_path,
    )
    assert found.settings["#"] == {
        "max_messages": 5, "when_full": "drop_oldest", "max_message_bytes": 5 << 10,
    }  # fmt: skip
    assert {**found.settings["#"], **found.queues["a"]} == fields


def test_a_limit_of_0_is_none_and_backups_may_be_any_number(tmp_path: Path) -> None:
    limits = "maxNumMsgs=0 maxTotalMsgBytes=0 maxBytesPerMsg=0 maxNumBackupConsumers=-1".split()
    found = of_script(f"imqcmd {CREATE} {' '.join(f'-o {each}' for each in limits)}\n", tmp_path)
    assert found.queues["a"] == {
        "max_messages": -1, "max_bytes": -1, "max_message_bytes": -1, "max_backup_consumers": 100,
    }  # fmt: skip
    found = of_script("imq.message.max_size=0\n", tmp_path)
    assert found.settings["#"] == {"max_message_bytes": -1}


def test_a_password_in_a_value_is_not_shown(tmp_path: Path) -> None:
    url = "imq.persist.jdbc.mysql.opendburl=jdbc:mysql://db/mq?user=mq&password=sesame"
    for text in (
        f"{url}\n",
        f"imqcmd update bkr -o '{url}'\n",
        f"imqcmd update bkr -o '{url}$x'\n",
    ):
        found = of_script(text, tmp_path)
        assert "sesame" not in "\n".join(map(str, found.findings))


def test_a_limit_of_a_topic_is_one_of_each_subscription(tmp_path: Path) -> None:
    found = of_script(
        "\ufeffimqcmd create dst -t t -n a -o maxNumMsgs=5 -o maxBytesPerMsg=5\n", tmp_path
    )
    assert lines(found.findings)[:3] == [
        (1, Verdict.TAKEN), (1, Verdict.CHANGED), (1, Verdict.TAKEN),
    ]  # fmt: skip
    assert "for each subscription" in found.findings[1].text
