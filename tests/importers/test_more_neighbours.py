"""More of what an importer must not say is taken over: NOT, diverts, prefixes, name spaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.importers.artemis import import_artemis
from ringfaust.importers.imported import CannotImport, Imported, Verdict
from ringfaust.importers.write import write
from tests.importers.files import artemis
from tests.importers.test_neighbours import filtered


@pytest.mark.parametrize(("text", "selector"), [
    ("NOT a = TRUE", "(NOT a) = TRUE"), ("NOT NOT a = FALSE", "(NOT NOT a) = FALSE"),
    ("b = 1 OR NOT (a) = TRUE", "b = 1 OR (NOT (a)) = TRUE"), ("NOT a", "NOT a"),
    ("NOT (a = 'x')", "NOT (a = 'x')"), ("NOT a AND b = 1", "NOT a AND b = 1"),
    ("(NOT a) OR b NOT IN ('NOT a = 1')", "(NOT a) OR b NOT IN ('NOT a = 1')"),
    ("b IS NOT NULL AND c NOT BETWEEN 1 AND 2", "b IS NOT NULL AND c NOT BETWEEN 1 AND 2"),
])  # fmt: skip
def test_not_binds_as_in_artemis(text: str, selector: str, tmp_path: Path) -> None:
    verdict = Verdict.TAKEN if selector == text else Verdict.CHANGED
    assert filtered(tmp_path, text) == (selector, verdict)


@pytest.mark.parametrize("text", [
    "NOT a = 'x'", "NOT a LIKE 'x%'", "NOT a IN ('x')", "NOT n BETWEEN 1 AND 9", "NOT n &gt; 3",
    "NOT a IS NULL", "b = 1 AND NOT a = 'x'",
])  # fmt: skip
def test_a_filter_that_artemis_reads_as_not_of_its_first_operand(text: str, tmp_path: Path) -> None:
    """In JMS it is NOT of the comparison; Artemis 2.44 takes it for never true, or refuses it."""
    assert filtered(tmp_path, text) == ("", Verdict.NONE)


def diverts(*given: tuple[str, str, str], copies: bool = False) -> str:
    """Diverts by name, source and target."""
    exclusive = "" if copies else "<exclusive>true</exclusive>"
    text = "".join(
        f"<divert name='{name}'><address>{source}</address>"
        f"<forwarding-address>{target}</forwarding-address>{exclusive}</divert>"
        for name, source, target in given
    )
    return f"<diverts>{text}</diverts>"


def declared(*names: str) -> str:
    text = "".join(
        f"<address name='{name}'><anycast><queue name='{name}'/></anycast></address>"
        for name in names
    )
    return f"<addresses>{text}</addresses>"


@pytest.mark.parametrize("turned", [False, True])
def test_a_record_ends_at_the_end_of_a_chain_of_detours(turned: bool, tmp_path: Path) -> None:
    """DivertImpl.route gives the message to the post office, which routes it by its new address."""
    chain = [("1", "a", "c"), ("2", "c", "d"), ("3", "b", "c")]
    found = artemis(tmp_path, diverts(*(chain[::-1] if turned else chain)))
    assert found.routes == {"a": "d", "b": "d", "c": "d", "d": "d"}
    assert set(found.queues) == {"d"}
    (line,) = [each for each in found.findings if each.setting.startswith("divert 1")]
    assert (line.verdict, "through c to d" in line.text) == (Verdict.CHANGED, True)


@pytest.mark.parametrize("given", [
    [("1", "a", "c"), ("2", "c", "a")], [("1", "a", "a")],
    [("0", "b", "a"), ("1", "a", "c"), ("2", "c", "d"), ("3", "d", "a")],
])  # fmt: skip
def test_detours_in_a_circle_have_no_end(given: list[tuple[str, str, str]], tmp_path: Path) -> None:
    found = artemis(tmp_path, diverts(*given))
    assert not found.routes and not found.queues
    assert [each.verdict for each in found.findings] == [Verdict.NONE] * len(given)
    assert all("in a circle" in each.text for each in found.findings)


def test_a_queue_whose_address_a_divert_empties_has_no_topic(tmp_path: Path) -> None:
    """BindingsImpl.route: what an exclusive divert takes is not routed to the queues."""
    found = artemis(tmp_path, declared("a", "d") + diverts(("1", "a", "d")))
    assert found.routes == {"a": "d", "d": "d", "messages": "{header:ringfaust-queue}"}
    assert set(found.queues) == {"a", "d"}
    (line,) = [each for each in found.findings if each.setting.startswith("divert 1")]
    assert "queue a gets only records of the topic messages that name it" in line.text


def test_who_may_send_to_the_source_of_a_detour_may_write_to_its_topic(tmp_path: Path) -> None:
    """A divert routes by itself: no right for its target is asked for, and that right is none."""
    security = "".join(
        f"<security-setting match='{name}'><permission type='send' roles='to-{name}'/>"
        "</security-setting>"
        for name in "ad"
    )
    text = f"{declared('d')}{diverts(('1', 'a', 'd'))}"
    found = artemis(tmp_path, f"{text}<security-settings>{security}</security-settings>")
    assert sorted((acl.split()[2], acl.split()[-1]) for acl in found.acls) == [
        ("User:to-a", "a"), ("User:to-d", "d"),
    ]  # fmt: skip


def test_a_copy_of_an_address_that_a_detour_empties_is_none(tmp_path: Path) -> None:
    text = diverts(("1", "a", "d")) + diverts(("2", "a", "e"), copies=True)
    found = artemis(tmp_path, text)
    assert found.routes == {"a": "d", "d": "d"} and not found.addresses
    (line,) = [each for each in found.findings if each.setting.startswith("divert 2")]
    assert (line.verdict, "divert 1 takes" in line.text) == (Verdict.NONE, True)


def test_a_copy_leads_to_the_end_of_the_chain(tmp_path: Path) -> None:
    text = diverts(("1", "a", "c"), copies=True) + diverts(("2", "c", "d"))
    found = artemis(tmp_path, text)
    assert found.addresses == {"a": {"subscriptions": {"1": {"shared": True}}}}
    (line,) = [each for each in found.findings if each.setting.startswith("divert 1")]
    assert "consumers of d attach there" in line.text


def test_a_copy_of_a_copy_says_what_does_not_get_it(tmp_path: Path) -> None:
    found = artemis(tmp_path, diverts(("1", "a", "c"), ("2", "c", "d"), copies=True))
    (line,) = [each for each in found.findings if each.setting.startswith("divert 1")]
    assert "divert 2 does not copy them on to d" in line.text


@pytest.mark.parametrize("copies", [False, True])
def test_a_divert_to_several_addresses_or_from_a_pattern_is_none(
    copies: bool, tmp_path: Path
) -> None:
    given = [("1", "a", "c,d"), ("2", "orders.#", "d")]
    found = artemis(tmp_path, declared("orders.eu") + diverts(*given, copies=copies))
    assert set(found.queues) == {"orders.eu"} and not found.addresses
    lines = [each for each in found.findings if each.setting.startswith("divert")]
    assert [each.verdict for each in lines] == [Verdict.NONE] * 2
    assert "one divert for each" in lines[0].text and "each address by name" in lines[1].text


def artemis_1(folder: Path, jms: str, core: str = "") -> Imported:
    path = folder / "broker.xml"
    path.write_text(f"<configuration><jms>{jms}</jms><core>{core}</core></configuration>")
    found = import_artemis(path)
    write(found, folder / "to")
    return found


@pytest.mark.parametrize("core", [
    "<queues><queue name='jms.queue.a'><address>jms.queue.a</address></queue></queues>",
    "<addresses><address name='jms.queue.a'><anycast><queue name='jms.queue.a'/></anycast>"
    "</address></addresses>",
])  # fmt: skip
def test_the_prefix_of_artemis_1_is_nowhere_in_a_name(core: str, tmp_path: Path) -> None:
    found = artemis_1(tmp_path, "<queue name='a'/>", core)
    assert (found.queues, found.addresses) == ({"a": {}}, {})


def test_a_divert_of_artemis_1_leads_to_the_queue_without_a_prefix(tmp_path: Path) -> None:
    core = diverts(("1", "jms.queue.a", "jms.topic.t"))
    settings = (
        "<address-settings><address-setting match='jms.queue.a'>"
        "<dead-letter-address>jms.queue.dead</dead-letter-address>"
        "</address-setting></address-settings>"
    )
    jms = "<queue name='dead'/><topic name='t'/>"
    found = artemis_1(tmp_path, jms, core + settings)
    assert set(found.queues) == {"dead", "a"} and found.addresses == {"t": {}}
    assert found.routes["a"] == "t"
    assert any(
        each.setting == "dead letters and expired messages to dead" for each in found.findings
    )


@pytest.mark.parametrize("turned", [False, True])
def test_old_queues_of_one_address_are_its_queues(turned: bool, tmp_path: Path) -> None:
    """The whole file was refused, because a was a queue and an address."""
    given = [
        "<queue name='a'><address>a</address></queue>",
        "<queue name='b'><address>a</address><durable>true</durable></queue>",
    ]
    text = "".join(given[::-1] if turned else given)
    found = artemis(tmp_path, f"{declared('c')}<queues>{text}<queue name='d'><address>c</address>"
                              "</queue></queues>")  # fmt: skip
    assert not found.queues
    shared = {"shared": True}
    assert found.addresses == {
        "a": {"subscriptions": {"a": shared, "b": shared}},
        "c": {"subscriptions": {"c": shared, "d": shared}},
    }
    write(found, tmp_path / "to")


@pytest.mark.parametrize("turned", [False, True])
def test_a_queue_and_a_topic_of_one_name_are_two_in_artemis_1(turned: bool, tmp_path: Path) -> None:
    jms = ["<queue name='a'/>", "<topic name='a'/>"]
    settings = "".join(
        f"<address-setting match='jms.{kind}.a'><max-delivery-attempts>{most}"
        "</max-delivery-attempts></address-setting>"
        for kind, most in (("topic", 3), ("queue", 5))
    )
    found = artemis_1(
        tmp_path,
        "".join(jms[::-1] if turned else jms),
        f"<address-settings>{settings}</address-settings>"
        "<queues><queue name='s'><address>jms.topic.a</address></queue></queues>",
    )
    assert set(found.queues) == {"a"}
    assert found.addresses == {"a-topic": {"subscriptions": {"s": {"shared": True}}}}
    assert found.settings == {"a": {"max_attempts": 5}, "a-topic": {"max_attempts": 3}}
    (line,) = [each for each in found.findings if each.setting == "jms, topic a"]
    assert (line.verdict, "a is a queue" in line.text) == (Verdict.CHANGED, True)


def test_a_pattern_of_queues_alone_is_no_pattern_of_topics(tmp_path: Path) -> None:
    settings = (
        "<address-settings><address-setting match='jms.queue.#'><max-delivery-attempts>3"
        "</max-delivery-attempts></address-setting></address-settings>"
    )
    found = artemis_1(tmp_path, "<queue name='a'/>", settings)
    assert found.settings == {"#": {"max_attempts": 3}}
    (tmp_path / "2").mkdir()
    found = artemis_1(tmp_path / "2", "<queue name='a'/><topic name='t'/>", settings)
    assert not found.settings
    (line,) = [each for each in found.findings if "jms.queue.#" in each.setting]
    assert (line.verdict, "topic t" in line.text) == (Verdict.NONE, True)


@pytest.mark.parametrize("kind", [
    "browse", "view", "createNonDurableQueue", "deleteNonDurableQueue", "createDurableQueue",
    "deleteDurableQueue", "createAddress", "deleteAddress",
])  # fmt: skip
def test_a_right_to_a_single_operation_is_no_right_to_all(kind: str, tmp_path: Path) -> None:
    """There is one right to write commands, with which a user may also purge any queue."""
    security = (
        f"<security-settings><security-setting match='a'><permission type='{kind}' roles='r'/>"
        "</security-setting></security-settings>"
    )
    found = artemis(tmp_path, declared("a") + security)
    assert not found.acls
    (line,) = [each for each in found.findings if f"{kind} for role r" in each.setting]
    assert (line.verdict, "by hand" in line.text) == (Verdict.NONE, True)


def test_all_topics_of_a_right_are_named(tmp_path: Path) -> None:
    security = (
        "<security-settings><security-setting match='#'><permission type='send' roles='r'/>"
        "</security-setting></security-settings>"
    )
    found = artemis(tmp_path, declared(*"abcde") + security)
    (line,) = [each for each in found.findings if "send for role r" in each.setting]
    assert "a, b, c, d, e;" in line.text


def test_a_delimiter_that_no_name_has_here_is_no_change_of_syntax(tmp_path: Path) -> None:
    syntax = "<wildcard-addresses><delimiter>{}</delimiter></wildcard-addresses>"
    (line,) = artemis(tmp_path, syntax.format("/")).findings
    assert (line.verdict, "a name with / is one word" in line.text) == (Verdict.NONE, True)
    (line,) = artemis(tmp_path, syntax.format(".")).findings
    assert line.verdict is Verdict.TAKEN


def test_a_value_that_is_not_allowed_is_named_in_one_sentence(tmp_path: Path) -> None:
    found = artemis(tmp_path, "<addresses><address name='a'><anycast><queue name='a' "
                    "max-consumers='-5'/></anycast></address></addresses>")  # fmt: skip
    (line,) = [each for each in found.findings if each.verdict is Verdict.NONE]
    assert line.text.startswith("max_active_consumers must be ")


def test_what_makes_the_result_invalid_is_named(tmp_path: Path) -> None:
    found = Imported(tmp_path / "broker.xml", queues={"a": {}}, addresses={"a": {}})
    with pytest.raises(CannotImport, match="written: queues.a: is also an address"):
        write(found, tmp_path / "to")


def test_a_role_that_only_the_machine_knows_is_named_so(tmp_path: Path) -> None:
    security = (
        "<security-settings><security-setting match='#'><permission type='send' roles='${R}'/>"
        "</security-setting></security-settings>"
    )
    (line,) = artemis(tmp_path, security).findings
    assert "the property R is not known here" in line.text
