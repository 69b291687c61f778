"""What an importer must not say is taken over: names that mean more here, rights, filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringfaust.config import load_queues
from ringfaust.importers.artemis import import_artemis
from ringfaust.importers.imported import Imported, Verdict
from ringfaust.importers.openmq import import_openmq
from ringfaust.importers.write import write
from tests.importers import definitions
from tests.importers.definitions import queue
from tests.importers.files import artemis

QUEUES = "".join(
    f"<address name='{name}'><anycast><queue name='{name}'/></anycast></address>"
    for name in ("open", "secret")
)
ALL = "<security-setting match='#'><permission type='send' roles='all'/></security-setting>"


def filtered(folder: Path, text: str) -> tuple[str, Verdict]:
    """The selector that a filter becomes, and the verdict of its line."""
    found = artemis(
        folder,
        f'<addresses><address name="a"><multicast><queue name="s"><filter string="{text}"/>'
        "</queue></multicast></address></addresses>",
    )
    (line,) = [each for each in found.findings if ", filter = " in each.setting]
    fields = found.addresses["a"]["subscriptions"]["s"]  # type: ignore[index]
    return fields.get("selector", ""), line.verdict


@pytest.mark.parametrize("security", [
    "<security-setting match='${m}'><permission type='send' roles='boss'/></security-setting>",
    "<security-setting match='se${m}'><permission type='send' roles='boss'/></security-setting>",
    "<xi:include href='more.xml'/>",
    "<inc:include href='more.xml'/>",
])  # fmt: skip
def test_a_match_that_is_not_known_may_deny(security: str, tmp_path: Path) -> None:
    text = f"<security-settings>{ALL}{security}</security-settings>"
    found = artemis(tmp_path, f"<addresses>{QUEUES}</addresses>{text}")
    assert not [acl for acl in found.acls if "secret" in acl]


@pytest.mark.parametrize("match", ["#", "*"])
def test_a_wildcard_of_ours_is_text_where_artemis_has_others(match: str, tmp_path: Path) -> None:
    syntax = (
        "<wildcard-addresses><any-words>%</any-words><single-word>_</single-word>"
        "</wildcard-addresses>"
    )
    security = ALL.replace("#", match)
    found = artemis(
        tmp_path,
        f"{syntax}<addresses>{QUEUES}</addresses><address-settings>"
        f"<address-setting match='{match}'><default-ring-size>4</default-ring-size>"
        "</address-setting></address-settings>"
        f"<security-settings>{security}</security-settings>",
    )
    assert not found.acls and not found.settings and set(found.queues) == {"open", "secret"}


@pytest.mark.parametrize("name", ["#", "a.*", "a{key}", "{"])
def test_a_name_that_would_be_a_pattern_or_a_template_is_refused(name: str, tmp_path: Path) -> None:
    found = definitions.imported(tmp_path, queues=[queue(name), queue("orders")])
    assert set(found.queues) == {"orders"}
    assert [each.verdict for each in found.findings if each.setting == f"queue {name}"] == [
        Verdict.NONE
    ]


@pytest.mark.parametrize(("text", "selector"), [
    ("AMQPriority = 5", "JMSPriority = 5"),
    ("'DURABLE' = (AMQDurable)", "'PERSISTENT' = (JMSDeliveryMode)"),
    ("&quot;AMQPriority&quot; = 5", "JMSPriority = 5"),
    ("&quot;a-b&quot; = 'x'", "\"a-b\" = 'x'"),  # since Artemis 2.13
    ("a = 1 -- not 2", "a = 1"),
    ("a = 1 /* not 2 */ OR b = '--'", "a = 1   OR b = '--'"),
])  # fmt: skip
def test_filters_become_selectors(text: str, selector: str, tmp_path: Path) -> None:
    assert filtered(tmp_path, text)[0] == selector


@pytest.mark.parametrize("text", ["&quot;AMQSize&quot; = 5", "AMQDurable LIKE 'DUR%'",
                                  "&quot;m.x-opt&quot; = 'x'",
                                  "JMSPriority > 5", "&quot;JMSTimestamp&quot; > 5",
                                  "AMQDurable NOT LIKE 'NON%'", "color = '${colour}'",
                                  "/*" * 500_000])  # fmt: skip
def test_filters_without_a_selector(text: str, tmp_path: Path) -> None:
    assert filtered(tmp_path, text) == ("", Verdict.NONE)


@pytest.mark.parametrize(("wide", "narrow", "longest"), [
    ("<redelivery-delay>1000</redelivery-delay>",
     "<redelivery-delay-multiplier>2</redelivery-delay-multiplier>", 10_000),
    ("<redelivery-delay>1000</redelivery-delay>"
     "<redelivery-delay-multiplier>2</redelivery-delay-multiplier>",
     "<redelivery-delay>5000</redelivery-delay>", 50_000),
    ("<max-redelivery-delay>70</max-redelivery-delay>",
     "<redelivery-delay>50</redelivery-delay>"
     "<redelivery-delay-multiplier>2</redelivery-delay-multiplier>", None),
])  # fmt: skip
def test_the_longest_delay_follows_from_all_matches(
    wide: str, narrow: str, longest: int | None, tmp_path: Path
) -> None:
    found = artemis(
        tmp_path,
        f"<address-settings><address-setting match='#'>{wide}</address-setting>"
        f"<address-setting match='a.#'>{narrow}</address-setting></address-settings>",
    )
    assert found.settings["a.#"].get("redelivery_delay_max_ms") == longest


@pytest.mark.parametrize("sources", [("a", "a"), ("a/b", "a b")])
def test_of_two_detours_of_one_topic_the_second_is_not_taken(
    sources: tuple[str, str], tmp_path: Path
) -> None:
    text = "".join(
        f"<divert name='d{n}'><address>{source}</address><forwarding-address>t{n}"
        "</forwarding-address><exclusive>true</exclusive></divert>"
        for n, source in enumerate(sources)
    )
    found = artemis(tmp_path, f"<diverts>{text}</diverts>")
    assert list(found.queues) == ["t0"]
    assert set(found.routes.values()) == {"t0"}  # the topics of the source and of its target
    verdicts = {each.setting.split()[1]: each.verdict for each in found.findings}
    assert verdicts == {"d0": Verdict.CHANGED, "d1": Verdict.NONE}


@pytest.mark.parametrize("vhost", [
    {"default_queue_type": "quorum"}, {"metadata": {"default_queue_type": "quorum"}},
    {"default_queue_type": "rabbit_quorum_queue"},
])  # fmt: skip
def test_a_queue_without_a_type_has_that_of_its_virtual_host(
    vhost: dict[str, object], tmp_path: Path
) -> None:
    found = definitions.imported(
        tmp_path, vhosts=[{"name": "/", **vhost}],
        queues=[queue("a"), {**queue("b"), "type": "classic"}, {**queue("c"), "durable": False}],
    )  # fmt: skip
    assert found.queues == {"a": {"max_attempts": 21}, "b": {"max_attempts": -1},
                            "c": {"max_attempts": -1}}  # fmt: skip


def test_open_mq_has_no_limits_of_topics_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.properties"
    path.write_text("imq.autocreate.topic.maxNumMsgs=5\nimq.autocreate.destination.maxNumMsgs=7\n")
    found = import_openmq(path)
    assert found.settings["#"]["max_messages"] == 7
    assert found.findings[0].verdict is Verdict.NONE


def matches(folder: Path, inner: str = "", **settings: str) -> Imported:
    """A file with address settings; in their matches `_` is written for `.`, and `H` for `#`."""
    given = "".join(
        f"<address-setting match='{match.replace('_', '.').replace('H', '#').replace('S', '*')}'>"
        + "".join("<{0}>{1}</{0}>".format(*each.split("=")) for each in text.split())
        + "</address-setting>"
        for match, text in settings.items()
    )
    return artemis(folder, f"<address-settings>{given}</address-settings>{inner}")


def verdict_of(found: Imported, about: str) -> tuple[Verdict, str]:
    (line,) = [each for each in found.findings if each.setting.startswith(about)]
    return line.verdict, line.text


def address(name: str, queue: str, kind: str = "anycast", attributes: str = "") -> str:
    inner = f"<{kind}><queue name='{queue}' {attributes}/></{kind}>"
    return f"<addresses><address name='{name}'>{inner}</address></addresses>"


OFF, ON = "auto-create-queues=false", "auto-create-queues=true"


@pytest.mark.parametrize(("settings", "created"), [
    ({"H": OFF, "a_H": "max-delivery-attempts=3"}, set()),
    ({"H": OFF, "a_H": ON}, {"a.#"}),
    ({"a_H": ON, "H": OFF, "a_b_H": "no-expiry=true"}, {"a.#", "a.b.#"}),
    ({"H": f"{ON} auto-create-addresses=false"}, set()),
])  # fmt: skip
def test_a_wider_match_decides_what_is_created(
    settings: dict[str, str], created: set[str], tmp_path: Path
) -> None:
    found = matches(tmp_path, **settings)
    assert set(found.queues) == created
    said = [each.text for each in found.findings if "auto-create" in each.setting]
    assert sum("declared as the pattern" in each for each in said) <= len(created)


def test_a_name_that_a_wider_pattern_creates_is_not_said_to_be_refused(tmp_path: Path) -> None:
    found = matches(tmp_path, H=ON, a_H=OFF)
    verdict, why = verdict_of(found, "address-setting a.#, auto-create-queues")
    assert (verdict, set(found.queues)) == (Verdict.NONE, {"#"})
    assert "the pattern # covers them" in why


def test_a_new_name_is_what_the_most_specific_match_says_or_a_line(tmp_path: Path) -> None:
    found = matches(tmp_path, H="default-address-routing-type=MULTICAST", a_H="no-expiry=true")
    assert set(found.addresses) == {"#", "a.#"} and not found.queues
    found = matches(
        tmp_path, H="default-address-routing-type=MULTICAST",
        q_H="default-address-routing-type=ANYCAST",
    )  # fmt: skip
    assert any("q.#" in each.setting and each.verdict is Verdict.CHANGED and
               "is an address" in each.text for each in found.findings)  # fmt: skip


@pytest.mark.parametrize(("jms", "created"), [("", {"#"}), ("<jms/>", set())])
def test_artemis_2_ignores_what_is_for_jms(jms: str, created: set[str], tmp_path: Path) -> None:
    text = "<auto-create-jms-queues>false</auto-create-jms-queues>"
    setting = f"<address-setting match='#'>{text}</address-setting>"
    path = tmp_path / "broker.xml"
    core = f"<core><address-settings>{setting}</address-settings></core>"
    path.write_text(f"<configuration>{jms}{core}</configuration>")
    found = import_artemis(path)
    assert set(found.queues) == created
    (line,) = found.findings
    assert ("Artemis 2 ignores it" in line.text) is bool(created)


def test_what_is_declared_is_not_created(tmp_path: Path) -> None:
    multicast = "default-address-routing-type=MULTICAST"
    found = matches(tmp_path, address("q", "q"), H=multicast, q="max-delivery-attempts=3")
    assert list(found.queues) == ["q"] and not found.addresses
    assert [each.setting for each in found.findings if "would hide" in each.text] == [
        "address-setting #, default-address-routing-type"
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_the_most_specific_match_decides_what_an_address_keeps(
    turned: bool, tmp_path: Path
) -> None:
    keeps = "retroactive-message-count="
    settings = {"H": f"{keeps}10", "a_H": f"{keeps}0", "a_b": f"{keeps}5"}
    names = "".join(address(each, "s", "multicast") for each in ("a.b", "a.c", "c"))
    inner = names.replace("</addresses><addresses>", "")
    found = matches(tmp_path, inner, **dict([*settings.items()][:: -1 if turned else 1]))
    kept = {name: each.get("retroactive_count") for name, each in found.addresses.items()}
    assert kept == {"a.b": 5, "a.c": 0, "c": 10, "a.#": 0, "#": 10}


@pytest.mark.parametrize(("wide", "narrow", "differs"), [
    ("a_b_H", "a_S", True),  # Artemis: what has no # comes first
    ("a_H", "S_b_H", True),  # and of two with # the longer one
    ("S_H", "a_H", True),  # of one length any
    ("H", "a_H", False),
    ("a_H", "a_S", False),
    ("a_H", "b_S", False),
])  # fmt: skip
def test_matches_that_artemis_puts_in_another_order_have_a_line(
    wide: str, narrow: str, differs: bool, tmp_path: Path
) -> None:
    settings = {wide: "max-delivery-attempts=3", narrow: "max-delivery-attempts=5"}
    found = matches(tmp_path, **settings)
    said = [each for each in found.findings if "counts; Artemis takes" in each.text]
    assert len(said) == differs
    for each in said:
        assert each.verdict is Verdict.NONE and "max_attempts = " in each.setting


def test_values_are_read_as_artemis_reads_them(tmp_path: Path) -> None:
    found = matches(tmp_path, a="max-redelivery-delay=-1 redelivery-collision-avoidance-factor=.5")
    assert found.settings["a"] == {"redelivery_delay_max_ms": 0, "redelivery_jitter": 0.5}
    tries = "<max-delivery-attempts>${ tries : 4 }</max-delivery-attempts>"
    setting = f"<address-setting match='a'>{tries}</address-setting>"
    found = artemis(tmp_path, f"<address-settings>{setting}</address-settings>")
    assert found.settings["a"] == {"max_attempts": 4}


EXCLUSIVE = {"max_active_consumers": 1, "max_backup_consumers": 100}


@pytest.mark.parametrize(("settings", "attributes", "fields"), [
    ({}, "exclusive='true'", EXCLUSIVE),
    ({}, "exclusive='true' max-consumers='5'", {**EXCLUSIVE, "max_backup_consumers": 4}),
    ({}, "max-consumers='5' exclusive='true'", {**EXCLUSIVE, "max_backup_consumers": 4}),
    ({}, "exclusive='true' max-consumers='1'", {"max_active_consumers": 1}),
    ({"a": "default-exclusive-queue=true"}, "exclusive='false'",
     {"max_active_consumers": -1, "max_backup_consumers": 0}),
    ({"a": "default-exclusive-queue=true"}, "max-consumers='5'",
     {**EXCLUSIVE, "max_backup_consumers": 4}),
    ({"a": "default-max-consumers=5"}, "exclusive='true'",
     {**EXCLUSIVE, "max_backup_consumers": 4}),
    ({"H": "default-exclusive-queue=true default-max-consumers=3"}, "",
     {**EXCLUSIVE, "max_backup_consumers": 2}),
    ({"H": "default-exclusive-queue=true", "a": "default-max-consumers=3"}, "",
     {**EXCLUSIVE, "max_backup_consumers": 2}),
    ({"H": "default-exclusive-queue=true", "a": "default-exclusive-queue=false"}, "",
     {"max_active_consumers": -1, "max_backup_consumers": 0}),
])  # fmt: skip
def test_exclusive_queues_have_as_many_backups_as_artemis_admits(
    settings: dict[str, str], attributes: str, fields: dict[str, int], tmp_path: Path
) -> None:
    found = matches(tmp_path, address("a", "a", attributes=attributes), **settings)
    tables = *reversed(found.settings.values()), found.queues["a"]
    if "H" in settings and "a" in settings:
        tables = found.settings["#"], found.settings["a"], found.queues["a"]
    applied = {name: value for each in tables for name, value in each.items()}
    assert {**applied, **fields} == applied


def test_any_number_of_consumers_shares_a_queue_of_an_address(tmp_path: Path) -> None:
    """Here one consumer at a time has it unless it is shared (R70)."""
    found = artemis(
        tmp_path,
        "<addresses><address name='o'><anycast><queue name='o'/></anycast></address>"
        "<address name='p'><anycast><queue name='x'/><queue name='y' max-consumers='-1'/></anycast>"
        "</address></addresses><diverts><divert name='d'><address>o</address>"
        "<forwarding-address>f</forwarding-address></divert></diverts>",
    )
    addresses: Any = found.addresses
    members = [each for name in ("o", "p") for each in addresses[name]["subscriptions"].values()]
    assert [each.get("shared") for each in members] == [True] * 4


@pytest.mark.parametrize(("target", "fields"), [
    ("b", {"ring_size": 5, "max_attempts": 3}), ("new", {"ring_size": 7, "max_attempts": 10}),
    ("other", {"ring_size": -1, "max_attempts": 10}),
])  # fmt: skip
def test_a_copy_has_the_settings_of_where_artemis_puts_it(
    target: str, fields: dict[str, int], tmp_path: Path
) -> None:
    """It had those of its source, whose ring dropped what the target would have kept."""
    queues = address("a", "a", attributes="ring-size='2'") + address(
        "b", "b", attributes="ring-size='5'"
    )
    divert = (
        f"<diverts><divert name='d'><address>a</address><forwarding-address>{target}"
        "</forwarding-address><filter string='x = 1'/></divert></diverts>"
    )
    found = matches(
        tmp_path, queues.replace("</addresses><addresses>", "") + divert,
        a="default-ring-size=4 max-delivery-attempts=6", b="max-delivery-attempts=3",
        new="default-ring-size=7",
    )  # fmt: skip
    write(found, tmp_path / "to")
    spec = load_queues(tmp_path / "to" / "queues.yaml").catalog().spec("a::d", {})
    assert (spec.selector, spec.shared) == ("x = 1", True)
    assert {name: getattr(spec, name) for name in fields} == fields


def test_a_queue_of_an_address_ignores_the_ring_size_of_its_address(tmp_path: Path) -> None:
    found = matches(tmp_path, address("a.b", "s", "multicast"), a_H="default-ring-size=9")
    assert found.addresses["a.b"]["subscriptions"]["s"]["ring_size"] == -1  # type: ignore[index]


@pytest.mark.parametrize("inner", [
    address("a", "x.#", "multicast"),
    "<queues><queue name='x.#'><address>a</address></queue></queues>",
    "<diverts><divert name='x.#'><address>a</address><forwarding-address>f</forwarding-address>"
    "</divert></diverts>",
])  # fmt: skip
def test_a_name_that_is_a_pattern_does_not_refuse_the_file(inner: str, tmp_path: Path) -> None:
    found = artemis(tmp_path, inner)
    write(found, tmp_path / "to")
    assert [each.verdict for each in found.findings if "x.#" in each.setting] == [Verdict.NONE]


@pytest.mark.parametrize("kind", ["anycast", "multicast"])
def test_a_wildcard_address_is_not_one_queue_for_each_name(kind: str, tmp_path: Path) -> None:
    """Its queue gets what is sent to all addresses that it covers."""
    found = artemis(tmp_path, address("a.#", "s", kind))
    assert not found.addresses and not found.queues
    assert verdict_of(found, "address a.#")[0] is Verdict.NONE


def test_wildcard_routing_has_no_equivalent(tmp_path: Path) -> None:
    for value, verdict in (("true", Verdict.NONE), ("false", Verdict.CHANGED)):
        text = f"<routing-enabled>{value}</routing-enabled>"
        found = artemis(tmp_path, f"<wildcard-addresses>{text}</wildcard-addresses>")
        assert verdict_of(found, "wildcard-addresses, routing-enabled")[0] is verdict


@pytest.mark.parametrize(("settings", "attributes", "is_said"), [
    ({}, "ring-size='3'", True), ({"a_H": "default-ring-size=3"}, "", True),
    ({}, "", False), ({}, "ring-size='0'", False), ({"a": "default-ring-size=-1"}, "", False),
])  # fmt: skip
def test_what_leaves_a_full_ring_is_said(
    settings: dict[str, str], attributes: str, is_said: bool, tmp_path: Path
) -> None:
    found = matches(tmp_path, address("a", "x", attributes=attributes), **settings)
    said = [each for each in found.findings if each.setting.startswith("rings")]
    assert [each.verdict for each in said] == [Verdict.CHANGED] * is_said
