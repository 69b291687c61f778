"""`ringfaust import artemis`: every element and attribute of a broker.xml has exactly one line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfaust.importers.artemis import import_artemis
from ringfaust.importers.imported import Verdict
from tests.importers.files import artemis, written
from tests.importers.settings_of_artemis import ADDRESS_SETTINGS


def in_queue(text: str) -> str:
    """The addresses with one queue."""
    queue = f"<queue name='q'>{text}</queue>"
    return f"<addresses><address name='a'><multicast>{queue}</multicast></address></addresses>"


def in_divert(text: str, attribute: str = "") -> str:
    """The diverts with one."""
    named = "<address>a</address><forwarding-address>b</forwarding-address>"
    return f"<diverts><divert name='d' {attribute}>{named}{text}</divert></diverts>"


PERMIT = "<permission type='send' roles='r'/>"


@pytest.mark.parametrize("text", [
    "<addresses><odd/></addresses>",
    "<addresses odd='1'/>",
    "<addresses><address name='a' odd='1'/></addresses>",
    "<addresses><address name='a'><odd/></address></addresses>",
    "<addresses><address name='a'/><address name='a' odd='1'/></addresses>",
    "<addresses><address name='a'><anycast odd='1'/></address></addresses>",
    "<addresses><address name='a'><multicast><odd/></multicast></address></addresses>",
    in_queue("<odd>1</odd>"),
    "<addresses><address name='a'><anycast><queue name='a' odd='1'/></anycast></address>"
    "</addresses>",
    in_queue("<durable odd='1'>true</durable>"),
    in_queue("<filter string='x = 1' odd='1'/>"),
    in_queue("<filter string='x = 1'><odd/></filter>"),
    "<queues><odd/></queues>",
    "<queues odd='1'/>",
    "<queues><queue name='q' odd='1'/></queues>",
    "<queues><queue name='q'><odd/></queue></queues>",
    "<diverts><odd/></diverts>",
    "<diverts odd='1'/>",
    in_divert("", "odd='1'"),
    in_divert("<odd>1</odd>"),
    "<address-settings><odd/></address-settings>",
    "<address-settings odd='1'/>",
    "<address-settings><address-setting match='a' odd='1'/></address-settings>",
    "<address-settings><address-setting match='a'><odd/></address-setting></address-settings>",
    "<address-settings><address-setting match='a'><no-expiry odd='1'>true</no-expiry>"
    "</address-setting></address-settings>",
    "<security-settings><odd/></security-settings>",
    "<security-settings odd='1'/>",
    f"<security-settings><security-setting match='#' odd='1'>{PERMIT}</security-setting>"
    "</security-settings>",
    "<security-settings><security-setting match='#'><odd/></security-setting></security-settings>",
    "<security-settings><security-setting match='#'><permission type='send' roles='r' odd='1'/>"
    "</security-setting></security-settings>",
    "<wildcard-addresses><odd>1</odd></wildcard-addresses>",
    "<wildcard-addresses odd='1'/>",
    "<odd>1</odd>",
    "<acceptors><odd/></acceptors>",
])  # fmt: skip
def test_what_is_unknown_has_one_line(text: str, tmp_path: Path) -> None:
    found = artemis(tmp_path, text)
    (line,) = [each for each in found.findings if "odd" in each.setting]
    assert line.verdict is Verdict.NONE


@pytest.mark.parametrize("text", ["<configuration odd='1'><core/></configuration>",
                                  "<core odd='1'/>"])  # fmt: skip
def test_attributes_of_the_outer_elements_have_lines(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.xml"
    path.write_text(text)
    (line,) = import_artemis(path).findings
    assert "odd = 1" in line.setting


@pytest.mark.parametrize(("text", "about"), [
    ("<literal-match-markers>()</literal-match-markers>", "literal-match-markers"),
    ("<connectors/>", "connectors"),
    (in_divert("<routing-name>n</routing-name>"), "routing-name"),
    ("<address-settings><address-setting match='m'/></address-settings>", "address-setting m"),
    ("<address-settings><address-setting match='$sys.m'/></address-settings>", "address-setting"),
    ("<security-settings><security-setting match='m'/></security-settings>", "security-setting m"),
    ("<security-settings><security-setting match='m'><permission type='send' roles=' , '/>"
     "</security-setting></security-settings>", "security-setting m, send"),
    ("<security-settings><security-setting match='a::b'><permission type='send' roles='r'/>"
     "</security-setting></security-settings>", "security-setting a::b, send"),
])  # fmt: skip
def test_what_says_little_has_one_line(text: str, about: str, tmp_path: Path) -> None:
    (line,) = [each for each in artemis(tmp_path, text).findings if about in each.setting]
    assert line.text


def test_a_divert_that_only_the_machine_knows_has_a_line(tmp_path: Path) -> None:
    found = artemis(tmp_path, in_divert("<exclusive>${x}</exclusive>"))
    (line,) = found.findings
    assert line.verdict is Verdict.NONE and "property x is not known" in line.text
    assert not found.routes and not found.addresses


def test_an_empty_delimiter_is_the_default(tmp_path: Path) -> None:
    found = artemis(
        tmp_path,
        "<wildcard-addresses><delimiter/></wildcard-addresses><address-settings>"
        "<address-setting match='a.#'><max-delivery-attempts>3</max-delivery-attempts>"
        "</address-setting></address-settings>",
    )
    assert found.settings == {"a.#": {"max_attempts": 3}}


# --- generated files: a leaf stands on its own line of the file -----------------------------------

VALUE = st.sampled_from(
    ["1", "0", "-1", "true", "false", "DROP", "10M", "", "x", "${p}", "${p:2}", "it's", "99999999"]
)
NAME = st.sampled_from(["a", "b.c", "a.#", "*.d", "x*", "a::b", "", "${p}", "${p:e}", "é", "$sys"])
QUEUE_FIELD = st.sampled_from(["durable", "ring-size", "max-consumers", "user", "exclusive", "odd"])
SETTING = st.sampled_from(ADDRESS_SETTINGS)
CORE = st.sampled_from(["name", "journal-type", "connection-ttl-override", "odd"])
PERMISSION = st.sampled_from(["send", "consume", "browse", "manage", "odd"])


def leaf(tags: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(tags, VALUE).map(lambda each: f"\n<{each[0]}>{escape(each[1])}</{each[0]}>")


def inside(tag: str, name: str, *inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """An element with up to three children; `name`: its attribute, or empty."""

    def text(drawn: tuple[str, list[str]]) -> str:
        attribute = f" {name}={quoteattr(drawn[0])}" if name else ""
        return f"\n<{tag}{attribute}>{''.join(drawn[1])}\n</{tag}>"

    return st.tuples(NAME, st.lists(st.one_of(*inner), max_size=3)).map(text)


ODD = st.just("\n<odd>1</odd>")
FILTER = VALUE.map(lambda value: f"\n<filter string={quoteattr(value)}/>")
A_QUEUE = inside("queue", "name", leaf(QUEUE_FIELD), FILTER)
A_DIVERT = st.tuples(NAME, NAME, NAME, VALUE).map(
    lambda each: (
        f"\n<divert name={quoteattr(each[0])}><address>{each[1]}</address>"
        f"<forwarding-address>{each[2]}</forwarding-address><exclusive>{each[3]}</exclusive></divert>"
    )
)
A_PERMISSION = st.tuples(PERMISSION, st.sampled_from(["", "r", "a b"])).map(
    lambda each: f"\n<permission type='{each[0]}' roles='{each[1]}'/>"
)
SECTIONS = st.lists(
    st.one_of(
        leaf(CORE),
        inside("addresses", "", inside("address", "name", inside("anycast", "", A_QUEUE, ODD),
                                       inside("multicast", "", A_QUEUE, ODD), ODD), ODD),
        inside("queues", "", A_QUEUE, ODD),
        inside("diverts", "", A_DIVERT, ODD),
        inside("address-settings", "",
               inside("address-setting", "match", leaf(SETTING), ODD), ODD),
        inside("security-settings", "",
               inside("security-setting", "match", A_PERMISSION, ODD), ODD),
    ),
    max_size=4,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(SECTIONS)
def test_any_broker_xml_gives_a_line_for_each_leaf_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, sections: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    found = written(folder, lambda: artemis(folder, "".join(sections) + "\n"))
    if found is None:
        return
    lines = Counter(each.line for each in found.findings)
    left_out = {each.line for each in found.findings if each.verdict is Verdict.NONE}
    around: list[int] = []
    inner = (folder / "broker.xml").read_text().splitlines()[1:-1]
    for number, line in enumerate(inner, 2):
        if line.startswith("</"):
            around.pop()
        elif "</" in line or line.endswith("/>"):
            expected = 0 if lines[number] == 0 and left_out & set(around) else 1
            assert lines[number] == expected, line
        else:
            around.append(number)
