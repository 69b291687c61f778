"""`ringfaust import artemis`: what a broker.xml says, in ringfaust's terms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.config import load
from ringfaust.importers.artemis import import_artemis
from ringfaust.importers.imported import CannotImport, Imported, ImportFinding, Verdict
from ringfaust.importers.write import write
from tests.importers.files import artemis
from tests.importers.settings_of_artemis import ADDRESS_SETTINGS, VALUES

FIXTURES = Path(__file__).with_name("fixtures")


def imported(text: str, tmp_path: Path) -> Imported:
    path = tmp_path / "broker.xml"
    path.write_text(text)
    return import_artemis(path)


def finding(found: Imported, about: str) -> ImportFinding:
    matching = [each for each in found.findings if about in each.setting]
    assert len(matching) == 1, [str(each) for each in matching]
    return matching[0]


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.glob("*.xml")))
def test_what_is_written_is_a_valid_configuration(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["import", "artemis", str(FIXTURES / name), "--to", str(tmp_path / "to")]
    )
    assert done.exit_code == 0, done.output
    checked = CliRunner().invoke(main, ["config", "check", "--config", str(tmp_path / "to")])
    assert checked.exit_code == 0, checked.output
    verdicts = tuple(Verdict)
    assert all(line.startswith(verdicts) for line in done.output.splitlines()[:-1])


def test_the_snippets_of_the_manual_become_rings(tmp_path: Path) -> None:
    rings = import_artemis(FIXTURES / "ring-queue.xml")
    assert (rings.queues, rings.routes) == ({"myRing": {"ring_size": 3}}, {"myRing": "myRing"})
    default = import_artemis(FIXTURES / "ring-default.xml")
    assert default.settings == {"ring.#": {"ring_size": 3}}
    assert default.queues == {"ring.#": {}}, "Artemis creates such queues when they are first used"
    assert default.routes == {"messages": "{header:ringfaust-queue}"}
    both = import_artemis(FIXTURES / "ring-both.xml")
    assert both.queues == {"myRing": {"ring_size": 5}, "ring.#": {}}


def test_a_created_broker_xml_is_taken_over() -> None:
    found = import_artemis(FIXTURES / "artemis-created.xml")
    assert found.queues == {"DLQ": {}, "ExpiryQueue": {}, "#": {}}
    assert found.settings["#"]["when_full"] == "block"
    assert finding(found, "address-setting #, dead-letter-address").verdict is Verdict.CHANGED
    assert any("--allow-principal User:amq --operation Write" in acl for acl in found.acls)


def test_queues_addresses_and_settings_are_read() -> None:
    found = import_artemis(FIXTURES / "shop.xml")
    assert found.settings["#"] == {"consumer_timeout_ms": 45_000, "max_attempts": 3}
    assert found.settings["orders.#"] == {
        "redelivery_delay_ms": 5000, "redelivery_multiplier": 2.0, "redelivery_jitter": 0.15,
        "redelivery_delay_max_ms": 50_000, "max_bytes": 10 << 20, "max_messages": 1000,
        "when_full": "reject_newest",
    }  # fmt: skip
    assert found.settings["prices.#"] == {"max_messages": 500, "when_full": "drop_newest"}
    assert found.addresses["jobs"] == {
        "routing": "anycast",
        "subscriptions": {
            "work": {"max_active_consumers": 1, "max_backup_consumers": 100,
                     "ring_size": 0, "compat": "artemis"},
        },
    }  # fmt: skip
    assert found.addresses["prices.eu"] == {
        "subscriptions": {
            "audit": {"max_active_consumers": 1, "ring_size": 50},
            "web": {"shared": True},
            "desk": {"shared": True},
        },
        "retroactive_count": 10,
    }
    assert found.addresses["prices.#"] == {"retroactive_count": 10}
    red = {"selector": "color='red'", "shared": True}
    assert found.addresses["colours"] == {"subscriptions": {"red": red}}
    assert "old" in found.queues


def test_a_divert_becomes_a_queue_of_the_address_or_a_route() -> None:
    found = import_artemis(FIXTURES / "shop.xml")
    assert found.addresses["orders"] == {
        "subscriptions": {
            "orders": {"ring_size": 100, "max_active_consumers": 5},
            "copy": {"selector": "JMSPriority > 5", "shared": True},
        }
    }
    assert found.routes["legacy"] == "orders.new"
    assert finding(found, "divert either").verdict is Verdict.NONE


def test_the_target_of_a_divert_keeps_its_own_topic(tmp_path: Path) -> None:
    found = imported(
        "<core><diverts>"
        + "".join(
            f"<divert name='{source}-{target}'><address>{source}</address><forwarding-address>"
            f"{target}</forwarding-address><exclusive>true</exclusive></divert>"
            for source, target in [("old", "orders"), ("old", "other"), ("gone", "orders")]
        )
        + "</diverts><addresses><address name='orders'><anycast><queue name='orders'/></anycast>"
        "</address></addresses></core>",
        tmp_path,
    )
    assert found.routes == {"old": "orders", "gone": "orders", "orders": "orders"}
    second = finding(found, "divert old-other")
    assert second.verdict is Verdict.NONE and "leads to orders already" in second.text


def test_roles_become_acls() -> None:
    found = import_artemis(FIXTURES / "shop.xml")
    added = "--add --allow-principal User:"
    assert f"{added}web --operation Write --operation Describe --topic orders" in found.acls
    dispatched = "--operation Read --operation Describe --topic ringfaust.dispatched"
    assert f"{added}billing {dispatched}" in found.acls
    to_new = f"{added}web --operation Write --operation Describe --topic legacy"
    assert to_new not in found.acls, "it is not allowed to send to legacy"
    assert finding(found, "fly for role billing").verdict is Verdict.NONE


def test_each_finding_says_what_to_do_and_where() -> None:
    found = import_artemis(FIXTURES / "shop.xml")
    lines = (FIXTURES / "shop.xml").read_text().splitlines()
    for each in found.findings:
        assert each.text and each.line <= len(lines)
    assert finding(found, "max-redelivery-delay = ${longest}").verdict is Verdict.NONE
    assert "more.xml" in finding(found, "xi:include").setting
    assert finding(found, "address-setting sensors*, default-ring-size").verdict is Verdict.NONE
    repeated = finding(found, "address-setting prices.#, default-ring-size")
    assert "repeated" in repeated.text and "prices.#" in lines[repeated.line - 1]
    assert finding(found, "queue web, filter").verdict is Verdict.NONE
    assert finding(found, "address a::b").verdict is Verdict.NONE
    assert "topsecret" not in "\n".join(map(str, found.findings))


@pytest.mark.parametrize("setting", ADDRESS_SETTINGS)
def test_every_address_setting_of_artemis_is_known(setting: str, tmp_path: Path) -> None:
    value = VALUES.get(setting, "1")
    found = imported(
        f'<address-settings><address-setting match="a.#">\n<{setting}>{value}</{setting}>'
        "</address-setting></address-settings>",
        tmp_path,
    )
    about = finding(found, f"address-setting a.#, {setting} = ")
    assert about.line == 2
    assert "is known here" not in about.text


@pytest.mark.parametrize("attribute", [
    "max-consumers", "purge-on-no-consumers", "exclusive", "group-rebalance", "group-buckets",
    "group-rebalance-pause-dispatch", "group-first-key", "last-value", "last-value-key",
    "non-destructive", "consumers-before-dispatch", "delay-before-dispatch", "ring-size",
    "enabled", "user", "durable",
])  # fmt: skip
def test_every_attribute_of_a_queue_is_known(attribute: str, tmp_path: Path) -> None:
    value = "true" if attribute in ("exclusive", "durable") else "1"
    queue = f'<queue name="q" {attribute}="{value}"/>'
    found = imported(
        f'<addresses><address name="q"><anycast>{queue}</anycast></address></addresses>', tmp_path
    )
    assert "is known here" not in finding(found, f"queue q, {attribute} = ").text


@pytest.mark.parametrize(("text", "line", "says"), [
    ("<addresses>\n<address name='a'>\n</addresses>", 3, "mismatched tag"),
    ("", 1, "no element found"),
    ("<addresses>", 1, "no element found"),
    ("<jms/>", 1, "<jms> is not broker.xml"),
    ("<configuration>\n<web/></configuration>", 1, "has no <core>"),
    ("<!DOCTYPE a [<!ENTITY b 'c'>]>\n<core/>", 1, "a DTD or an entity is not accepted"),
    ("<a>" * 60, 1, "nest deeper than 50 levels"),
    ("<?xml version='1.0' encoding='shift_jis'?><core/>", 1, "save it as UTF-8"),
    ("<?xml version='1.0' encoding='klingon'?><core/>", 1, "save it as UTF-8"),
    ("<core><address-settings>\n<address-setting match='a'>\n<max-delivery-attempts>many"
     "</max-delivery-attempts></address-setting></address-settings></core>", 3,
     "max-delivery-attempts = 'many' is not a whole number"),
    ("<core><address-settings><address-setting match='a'>\n<max-size-bytes>10 apples"
     "</max-size-bytes></address-setting></address-settings></core>", 2, "not a number of bytes"),
    ("<core><address-settings><address-setting match='a'>\n<auto-create-queues>maybe"
     "</auto-create-queues></address-setting></address-settings></core>", 2,
     "'maybe' is neither true nor false"),
])  # fmt: skip
def test_a_broken_file_gives_one_sentence(text: str, line: int, says: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.xml"
    path.write_text(text)
    done = CliRunner().invoke(main, ["import", "artemis", str(path), "--to", str(tmp_path / "to")])
    assert done.exit_code == 2
    assert not done.stdout and not (tmp_path / "to").exists()
    assert re.fullmatch(rf"ringfaust: {re.escape(str(path))}, line {line}: .*\n", done.stderr)
    assert says in done.stderr


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotImport, match="is larger than 10 MiB"):
        imported("<core>" + " " * (10 << 20) + "</core>", tmp_path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").write_text("{}\n")
    arguments = ["import", "artemis", str(FIXTURES / "shop.xml"), "--to", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2 and "exists already" in done.stderr
    assert (tmp_path / "queues.yaml").read_text() == "{}\n"


def test_other_wildcards_are_translated(tmp_path: Path) -> None:
    found = imported(
        "<core><wildcard-addresses><any-words>&gt;</any-words><single-word>+</single-word>"
        "</wildcard-addresses><address-settings>"
        "<address-setting match='a.&gt;'><default-ring-size>1</default-ring-size></address-setting>"
        "<address-setting match='b.+'><default-ring-size>2</default-ring-size></address-setting>"
        "</address-settings></core>",
        tmp_path,
    )
    assert found.settings == {"a.#": {"ring_size": 1}, "b.*": {"ring_size": 2}}


def test_names_that_kafka_does_not_allow_get_other_topics(tmp_path: Path) -> None:
    names = ("a b", "a_b", "a.b", "ringfaust.control")
    queues = "".join(
        f'<address name="{name}"><anycast><queue name="{name}"/></anycast></address>'
        for name in names
    )
    found = imported(f"<addresses>{queues}</addresses>", tmp_path)
    assert list(found.routes.values()) == list(names)
    topics = ["a_b", "a_b-2", "a.b-3", "ringfaust.control-2"]
    assert list(found.routes) == topics
    for name, topic in zip(names, topics, strict=True):
        said = [each for each in found.findings if each.setting == f"the topic of {name}"]
        assert [each.text.partition(",")[0] for each in said] == [topic] * (name != topic)


def test_the_topic_that_lines_name_messages_has_that_name(tmp_path: Path) -> None:
    queue = "<address name='messages'><anycast><queue name='messages'/></anycast></address>"
    found = imported(f"<addresses>{queue}<address name='a'><multicast/></address></addresses>",
                     tmp_path)  # fmt: skip
    assert found.routes == {
        "messages-2": "messages", "a": "a", "messages": "{header:ringfaust-queue}",
    }  # fmt: skip


def test_the_configuration_means_what_the_file_said(tmp_path: Path) -> None:
    arguments = ["import", "artemis", str(FIXTURES / "shop.xml"), "--to", str(tmp_path / "to")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    catalog = load(tmp_path / "to")[1].catalog()
    audit = catalog.spec("prices.eu::audit", {})
    assert (audit.ring_size, audit.max_messages, audit.max_attempts) == (50, 500, 3)
    assert catalog.spec("orders::orders", {}).redelivery_delay == 5000


# --- what the file leaves out, and what Artemis 1 had ---------------------------------------------


def settings_of(tmp_path: Path, **children: dict[str, object]) -> Imported:
    """By match, where `_` is written for `.#`."""
    settings = "".join(
        f"<address-setting match='{match.replace('_', '.#')}'>"
        + "".join(f"<{tag}>{text}</{tag}>" for tag, text in each.items())
        + "</address-setting>"
        for match, each in children.items()
    )
    return artemis(tmp_path, f"<address-settings>{settings}</address-settings>")


LIMIT: dict[str, object] = {"max-size-messages": 3}
DROPS: dict[str, object] = {"address-full-policy": "DROP"}


@pytest.mark.parametrize(
    ("children", "when_full"),
    [
        ({"a": LIMIT}, "block"),
        ({"a_": LIMIT}, "block"),
        ({"a": {"max-size-bytes": "10K"}}, "block"),
        ({"a": {"max-size-messages": -1}}, None),
        ({"a": {**LIMIT, **DROPS}}, "drop_newest"),
        ({"a.b": LIMIT, "a_": DROPS}, None),
        ({"a_": LIMIT, "a.b_": DROPS}, "block"),
        ({"a_": LIMIT, "a.b": DROPS}, "block"),
        ({"x": LIMIT, "a_": DROPS}, "block"),
        ({"a": {"max-delivery-attempts": 3}}, None),
    ],
)
def test_artemis_pages_what_exceeds_a_size_unless_it_is_told_otherwise(
    children: dict[str, dict[str, object]], when_full: str | None, tmp_path: Path
) -> None:
    """B1: without a policy the queue would evict what Artemis keeps."""
    found = settings_of(tmp_path, **children)
    first = next(iter(children)).replace("_", ".#")
    assert found.settings[first].get("when_full") == when_full
    said = [each for each in found.findings if "no address-full-policy" in each.setting]
    assert len(said) == (when_full == "block")


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("AMQDurable = 'DURABLE'", "JMSDeliveryMode = 'PERSISTENT'"),
        ("AMQDurable <> 'NON_DURABLE'", "JMSDeliveryMode <> 'NON_PERSISTENT'"),
        ("'DURABLE' = AMQDurable", "'PERSISTENT' = JMSDeliveryMode"),
        ("AMQDurable IN ('DURABLE', 'x')", "JMSDeliveryMode IN ('PERSISTENT', 'x')"),
        (
            "AMQDurable = 'DURABLE' AND note = 'DURABLE'",
            "JMSDeliveryMode = 'PERSISTENT' AND note = 'DURABLE'",
        ),
        ("note = 'DURABLE'", "note = 'DURABLE'"),
        ("AMQPriority > 6", "JMSPriority > 6"),
        ("note = 'AMQPriority is a word'", "note = 'AMQPriority is a word'"),
        ("note = 'it''s AMQSize'", "note = 'it''s AMQSize'"),
        ("myAMQPriority = 1", "myAMQPriority = 1"),
        ("AMQSize > 100", None),
        ("note = 'a' OR AMQAddress = 'beacon'", None),
        ("AMQPriorityClass = 'gold'", None),
    ],
)
def test_filters_are_translated_name_by_name(
    text: str, selector: str | None, tmp_path: Path
) -> None:
    """B4: what no selector has is said, and is not null for ever."""
    queue = f"<queue name='q'><filter string={quoteattr(text)}/></queue>"
    address = f"<address name='a'><multicast>{queue}</multicast></address>"
    found = artemis(tmp_path, f"<addresses>{address}</addresses>")
    subscriptions: Any = found.addresses["a"]["subscriptions"]
    assert subscriptions["q"].get("selector") == selector
    assert (finding(found, "queue q, filter").verdict is Verdict.NONE) == (selector is None)


@pytest.mark.parametrize("has_core", [True, False])
def test_jms_of_artemis_1_is_read(has_core: bool, tmp_path: Path) -> None:
    """B2."""
    jms = (
        "<jms><queue name='lantern.repairs'><durable>true</durable></queue>"
        "<topic name='tide.tables'/><connection-factory name='f'/></jms><extra/>"
    )
    core = (
        "<address-settings><address-setting match='jms.queue.lantern.repairs'>"
        "<max-delivery-attempts>3</max-delivery-attempts></address-setting></address-settings>"
    )
    path = tmp_path / "broker.xml"
    path.write_text(
        f"<configuration>{jms}{f'<core>{core}</core>' if has_core else ''}</configuration>"
    )
    found = import_artemis(path)
    assert found.queues["lantern.repairs"] == {}
    assert found.addresses["tide.tables"] == {}
    assert set(found.routes.values()) >= {"lantern.repairs", "tide.tables"}
    assert found.settings == ({"lantern.repairs": {"max_attempts": 3}} if has_core else {})
    for setting in ("jms, connection-factory", "extra", "jms, queue lantern.repairs, durable"):
        assert finding(found, setting).verdict is Verdict.NONE


def test_placeholders_in_names_matches_and_filters_have_their_defaults(tmp_path: Path) -> None:
    """B3: Artemis fills them in before it reads the file."""
    found = artemis(
        tmp_path,
        """<address-settings><address-setting match="${site.prefix:dock.#}">
        <max-delivery-attempts>${tries:4}</max-delivery-attempts></address-setting>
        </address-settings><addresses>
        <address name="${site.queue:dock.cranes}"><anycast><queue name="${site.queue:dock.cranes}"/>
        </anycast></address><address name="dock.alerts"><multicast><queue name="night">
        <filter string="${site.filter:shift = 'night'}"/></queue></multicast></address></addresses>
        <diverts><divert name="copy"><address>${site.alerts:dock.alerts}</address>
        <forwarding-address>dock.${archive:archive}</forwarding-address></divert></diverts>""",
    )
    write(found, tmp_path / "to")
    assert found.settings["dock.#"] == {"max_attempts": 4}
    assert "dock.cranes" in found.queues
    night: Any = found.addresses["dock.alerts"]["subscriptions"]
    assert night["night"]["selector"] == "shift = 'night'"
    assert not any("${" in str(each) for each in found.findings)


@pytest.mark.parametrize("inner", [
    '<addresses><address name="${a}"><anycast><queue name="q"/></anycast></address></addresses>',
    '<addresses><address name="x.${a}.${b:c}"><anycast/></address></addresses>',
    "<queues><queue name='q'><address>${a}</address></queue></queues>",
    '<address-settings><address-setting match="${a}.#"><max-delivery-attempts>4'
    "</max-delivery-attempts></address-setting></address-settings>",
    "<diverts><divert name='d'><address>${a}</address><forwarding-address>b"
    "</forwarding-address></divert></diverts>",
])  # fmt: skip
def test_a_name_that_only_the_machine_knows_gets_a_line(inner: str, tmp_path: Path) -> None:
    found = artemis(tmp_path, inner)
    write(found, tmp_path / "to")
    assert not found.queues and not found.addresses and not found.settings
    (line,) = [each for each in found.findings if "property a is not known" in each.text]
    assert line.verdict is Verdict.NONE


def test_each_include_gets_a_line(tmp_path: Path) -> None:
    found = artemis(
        tmp_path,
        """<xi:include href="0.xml"/><address-settings><xi:include href="1.xml"/></address-settings>
        <diverts><xi:include href="2.xml"/></diverts><queues><xi:include href="3.xml"/></queues>
        <security-settings><xi:include href="4.xml"/></security-settings>
        <addresses><xi:include href="5.xml"/><address name="q"><anycast><queue name="q"/>
        <xi:include href="6.xml"/></anycast><xi:include href="7.xml"/></address></addresses>""",
    )
    named = [each.setting for each in found.findings if "xi:include" in each.setting]
    assert sorted(each[-5:] for each in named) == [f"{number}.xml" for number in range(8)]
    assert list(found.queues) == ["q"]


def test_a_declared_queue_ignores_the_default_ring_size(tmp_path: Path) -> None:
    """As in Artemis, where `make oracle IMPORTED=1` has shown it."""
    path = tmp_path / "broker.xml"
    path.write_text(
        "<core><address-settings><address-setting match='#'>"
        "<default-ring-size>3</default-ring-size></address-setting></address-settings>"
        "<addresses><address name='a'><anycast><queue name='a'/></anycast></address>"
        "<address name='b'><anycast><queue name='b' ring-size='5'/></anycast></address>"
        "</addresses></core>"
    )
    found = import_artemis(path)
    assert found.queues["a"] == {"ring_size": -1}
    assert found.queues["b"] == {"ring_size": 5}
    assert "ignores the default-ring-size of 3" in finding(found, "queue a, no ring-size").text
