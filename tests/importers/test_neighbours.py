"""What an importer must not say is taken over: names that mean more here, rights, filters."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.importers.imported import Verdict
from ringfaust.importers.openmq import import_openmq
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
])  # fmt: skip
def test_filters_become_selectors(text: str, selector: str, tmp_path: Path) -> None:
    assert filtered(tmp_path, text)[0] == selector


@pytest.mark.parametrize("text", ["&quot;AMQPriority&quot; = 5", "AMQDurable LIKE 'DUR%'",
                                  "&quot;a-b&quot; = 'x'",
                                  "AMQDurable NOT LIKE 'NON%'", "color = '${colour}'"])  # fmt: skip
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
