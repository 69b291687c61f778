"""`ringfaust import artemis`: of security settings the most specific counts; no right widens."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.importers.artemis import import_artemis
from ringfaust.importers.imported import Imported, Verdict
from tests.importers.files import artemis

AUTO = "<address-settings><address-setting match='#'/></address-settings>"


def imported(folder: Path, *settings: tuple[str, str], names: str = "a.b a.c x",
             syntax: str = "") -> Imported:  # fmt: skip
    """With a queue for each name; `settings`: matches, and the roles that may send."""
    queues = "".join(
        f"<address name='{name}'><anycast><queue name='{name}'/></anycast></address>"
        for name in names.split()
    )
    security = "".join(
        f"<security-setting match='{match}'><permission type='send' roles='{roles}'/>"
        f"<permission type='manage' roles='admin'/></security-setting>"
        for match, roles in settings
    )
    path = folder / "broker.xml"
    path.write_text(
        f"<core>{syntax}<addresses>{queues}</addresses>{AUTO}"
        f"<security-settings>{security}</security-settings></core>"
    )
    return import_artemis(path)


def topics(found: Imported, role: str) -> set[str]:
    """What the role may send to."""
    start = f"--add --allow-principal User:{role} --operation Write --operation Describe --topic "
    given = {acl.removeprefix(start) for acl in found.acls if acl.startswith(start)}
    return given - {"ringfaust.control"}


ALL = {"a.b", "a.c", "x", "messages"}


@pytest.mark.parametrize(("settings", "sends"), [
    ([("#", "r")], ALL),
    # The narrower match replaces the wider one.
    ([("#", "r"), ("a.#", "s")], {"x"}),
    ([("a.#", "s"), ("#", "r")], {"x"}),
    ([("a.#", "r"), ("a.b", "s")], {"a.c"}),
    ([("#", "s"), ("a.b", "r")], {"a.b"}),
    ([("#", "r"), ("a.b", "")], {"a.c", "x"}),
    ([("#", "r"), ("a.#", "r"), ("a.b", "r")], ALL),
    # Neither is narrower: both have to allow it.
    ([("a.*", "r"), ("*.b", "s")], {"a.c"}),
    ([("a.*", "r"), ("*.b", "r")], {"a.b", "a.c"}),
    # The last one of a match counts.
    ([("#", "r"), ("#", "s")], set()),
    # A match of the broker's own addresses narrows nothing.
    ([("#", "r"), ("activemq.management.#", "s")], ALL),
    # A topic whose records name any queue is for those who may send to all of them.
    ([("a.#", "r")], {"a.b", "a.c"}),
])  # fmt: skip
def test_who_may_send(settings: list[tuple[str, str]], sends: set[str], tmp_path: Path) -> None:
    assert topics(imported(tmp_path, *settings), "r") == sends


def test_a_right_that_reaches_no_topic_has_a_line(tmp_path: Path) -> None:
    found = imported(tmp_path, ("a.#", "r"), ("a.b", "s"), names="a.b")
    (line,) = [each for each in found.findings if "a.#, send for role r" in each.setting]
    assert line.verdict is Verdict.NONE and "by hand" in line.text


@pytest.mark.parametrize("match", ["activemq.management.#", "activemq.notifications", "$sys.#"])
def test_who_consumes_from_the_broker_itself_gets_no_right_to_all_queues(
    match: str, tmp_path: Path
) -> None:
    permission = "<permission type='consume' roles='monitor'/>"
    setting = f"<security-setting match='{match}'>{permission}</security-setting>"
    found = artemis(tmp_path, f"<security-settings>{setting}</security-settings>")
    assert not found.acls and [each.verdict for each in found.findings] == [Verdict.NONE]


@pytest.mark.parametrize(("matches", "other", "managers"), [
    ("#", "", "#"), ("orders.#", "", ""),
    ("# activemq.management.#", "", "activemq.management.#"), ("# ops.#", "", "#"),
    ("# ops.#", "<management-address>ops.all</management-address>", "ops.#"),
])  # fmt: skip
def test_who_manages_is_decided_at_the_management_address(
    matches: str, other: str, managers: str, tmp_path: Path
) -> None:
    given = matches.split()
    settings = "".join(
        f"<security-setting match='{match}'><permission type='manage' roles='r{number}'/>"
        "</security-setting>"
        for number, match in enumerate(given)
    )
    found = artemis(tmp_path, f"<security-settings>{settings}</security-settings>{other}")
    users = {acl.partition("User:")[2].split()[0] for acl in found.acls}
    assert users == ({f"r{given.index(managers)}"} if managers else set())


SLASHES = "<wildcard-addresses><delimiter>/</delimiter></wildcard-addresses>"
ARROWS = "<wildcard-addresses><any-words>></any-words></wildcard-addresses>"
MARKED = "<literal-match-markers>()</literal-match-markers>"


@pytest.mark.parametrize(("syntax", "settings", "sends"), [
    # `*` inside a word matches in Artemis: the narrower match may decide.
    ("", [("#", "r"), ("a*", "s")], {"x"}),
    ("", [("#", "r"), ("a.b*", "s")], {"a.c", "x"}),
    ("", [("#", "r"), ("*b", "s")], set()),
    ("", [("a.*", "r"), ("a#", "s")], set()),
    ("", [("#", "r"), ("a*", "r")], ALL),
    ("", [("#", "r"), ("a*", "s"), ("a.b", "r")], {"a.b", "x"}),
    # A match that is not read is for names that begin like it.
    (SLASHES, [("#", "r"), ("a/b", "s"), ("a/#", "s")], {"x"}),
    (SLASHES, [("#", "r"), ("#/b", "s")], set()),
    (MARKED, [("#", "r"), ("(a.#)", "s")], {"x"}),
    (ARROWS, [(">", "r"), ("a>", "s")], {"x"}),
    # It gives no right itself.
    ("", [("a*", "r")], set()),
])  # fmt: skip
def test_a_match_that_is_not_read_takes_the_right_of_wider_ones(
    syntax: str, settings: list[tuple[str, str]], sends: set[str], tmp_path: Path
) -> None:
    found = imported(tmp_path, *settings, syntax=syntax)
    assert topics(found, "r") == sends
    if not sends:
        lines = [each for each in found.findings if "send for role r" in each.setting]
        assert lines and all("by hand" in line.text for line in lines)
