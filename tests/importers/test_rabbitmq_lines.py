"""`ringfaust import rabbitmq`: every element has a line, and what is not read widens nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfaust.importers.imported import ImportFinding, Verdict
from ringfaust.importers.rabbitmq import import_rabbitmq
from tests.importers.definitions import binding, imported, policy, queue
from tests.importers.files import written


def line(tmp_path: Path, about: str, **definitions: Any) -> ImportFinding:
    """The one line about an element, by how its setting begins."""
    found = imported(tmp_path, **definitions).findings
    (only,) = [each for each in found if each.setting.startswith(about)]
    return only


@pytest.mark.parametrize(("about", "verdict", "definitions"), [
    ("exchange lone", Verdict.NONE, {"exchanges": [{"name": "lone", "type": "fanout"}]}),
    ("exchange fed", Verdict.TAKEN, {
        "queues": [queue("q")], "exchanges": [{"name": "fed", "type": "fanout"}],
        "bindings": [binding("fed", "q")]}),
    ("exchange lone, internal", Verdict.NONE,
     {"exchanges": [{"name": "lone", "type": "fanout", "internal": True}]}),
    ("exchange lone, auto_delete", Verdict.NONE,
     {"exchanges": [{"name": "lone", "type": "fanout", "auto_delete": True}]}),
    ("exchange lone, durable = false", Verdict.CHANGED,
     {"exchanges": [{"name": "lone", "type": "fanout", "durable": False}]}),
    ("exchange lone, hash-header = id", Verdict.NONE,
     {"exchanges": [{"name": "lone", "type": "x", "arguments": {"hash-header": "id"}}]}),
    ("policy AE", Verdict.NONE, {
        "exchanges": [{"name": "x", "type": "topic"}],
        "policies": [policy("AE", "^x$", to="exchanges", alternate_exchange="dead")]}),
    ("vhost /", Verdict.TAKEN, {"queues": [queue("q")], "vhosts": [{"name": "/"}]}),
    ("vhost empty", Verdict.NONE, {"queues": [queue("q")], "vhosts": [{"name": "empty"}]}),
    ("vhost lab", Verdict.CHANGED,
     {"queues": [queue("q"), queue("r", "lab")], "vhosts": [{"name": "lab"}]}),
    ("vhosts, lab, limits = ", Verdict.NONE,
     {"vhosts": [{"name": "lab", "limits": {"max-queues": 3}}]}),
    ("users, ann, tags = administrator", Verdict.NONE,
     {"users": [{"name": "ann", "tags": "administrator"}]}),
    ("topic permission of ann for exchange amq.topic", Verdict.NONE,
     {"queues": [], "topic_permissions": [{"user": "ann", "exchange": "amq.topic"}]}),
    ("global_parameters cluster_name", Verdict.NONE,
     {"queues": [], "global_parameters": [{"name": "cluster_name", "value": "x"}]}),
    ("rabbit_version = 3.13.1", Verdict.TAKEN, {"queues": [], "rabbit_version": "3.13.1"}),
    ("queues, q, odd = 1", Verdict.NONE, {"queues": [{"name": "q", "odd": 1}]}),
    ("queue q", Verdict.TAKEN, {"queues": [queue("q")]}),
    ("queue q", Verdict.CHANGED, {"queues": [queue("q")], "bindings": [binding("amq.topic", "q")]}),
    ("queues without max-priority", Verdict.CHANGED, {"queues": [queue("q"), queue("r")]}),
    ("queue q, max-priority = 9", Verdict.CHANGED, {"queues": [queue("q", max_priority=9)]}),
    ("queue q, max-length with max-priority", Verdict.CHANGED,
     {"queues": [queue("q", max_priority=9, max_length=2)]}),
    ("queue q, max-length-bytes with max-priority", Verdict.CHANGED,
     {"queues": [queue("q", max_priority=9, max_length_bytes=2)]}),
    ("quorum queues, returned messages", Verdict.CHANGED,
     {"queues": [queue("q", queue_type="quorum"), queue("r", queue_type="quorum")]}),
    ("binding  -> q", Verdict.TAKEN, {"queues": [queue("q")], "bindings": [binding("", "q", "q")]}),
    ("binding  -> q", Verdict.NONE, {"queues": [], "bindings": [binding("", "q", "q")]}),
])  # fmt: skip
def test_every_element_has_one_line(
    about: str, verdict: Verdict, definitions: dict[str, Any], tmp_path: Path
) -> None:
    assert line(tmp_path, about + "", **definitions).verdict is verdict


UNREAD = ["q\\z", "\\Qq\\E", "q\\h", "[[:alpha:]]", "(?|q)", "q{,2}", "(", "(?i", "q" * 300,
          "q{99999999999}"]  # fmt: skip


@pytest.mark.parametrize("pattern", UNREAD)
@pytest.mark.parametrize("right", ["write", "read", "configure"])
def test_a_permission_that_is_not_read_gives_no_right(
    right: str, pattern: str, tmp_path: Path
) -> None:
    rights = {"configure": "", "write": "", "read": "", right: pattern}
    definitions = {"queues": [queue("q")], "permissions": [{"user": "u", "vhost": "/", **rights}]}
    about = line(tmp_path, "permissions of u", **definitions)
    assert about.verdict is Verdict.NONE and f"no right to {right}" in about.text
    assert imported(tmp_path, **definitions).acls == {}


@pytest.mark.parametrize("pattern", UNREAD)
def test_a_policy_that_is_not_read_sets_nothing(pattern: str, tmp_path: Path) -> None:
    wide = policy("wide", pattern, max_length=3)
    definitions = {"queues": [queue("q")], "policies": [wide]}
    about = line(tmp_path, "policy wide", **definitions)
    assert about.verdict is Verdict.NONE and "max-length = 3" in about.text
    found = imported(tmp_path, **definitions)
    assert "ring_size" not in found.queues["q"] and not found.settings


def test_a_user_of_a_host_without_queues_reads_nothing(tmp_path: Path) -> None:
    everything = {"user": "u", "vhost": "lab", "write": ".*", "read": ".*", "configure": ".*"}
    found = imported(tmp_path, queues=[queue("q")], permissions=[everything])
    assert found.acls == {}


@pytest.mark.parametrize(("pattern", "topics"), [
    (".*", ["q", "x", "messages"]), ("", []), ("^q$", []), ("^(q|x)$", ["x"]),
    ("^amq\\.", ["q"]), ("^(x|amq\\.default)$", ["q", "x", "messages"]),
])  # fmt: skip
def test_who_may_name_any_queue_may_write_to_all(
    pattern: str, topics: list[str], tmp_path: Path
) -> None:
    permission = {"user": "u", "vhost": "/", "write": pattern, "read": "", "configure": ""}
    found = imported(
        tmp_path, queues=[queue("q"), queue("r")], permissions=[permission],
        exchanges=[{"name": "x", "type": "fanout"}], bindings=[binding("x", "r")],
    )  # fmt: skip
    assert [acl.partition("--topic ")[2] for acl in found.acls] == topics


def test_an_exchange_feeds_no_queue_of_another_host(tmp_path: Path) -> None:
    everything = {"user": "u", "vhost": "lab", "write": ".*", "read": "", "configure": ""}
    found = imported(
        tmp_path, queues=[queue("q")], exchanges=[{"name": "x", "vhost": "lab", "type": "fanout"}],
        bindings=[binding("x", "q", vhost="lab")], permissions=[everything],
    )  # fmt: skip
    assert "q" in found.queues
    (line,) = [each for each in found.findings if each.setting.startswith("binding")]
    assert line.verdict is Verdict.NONE and "no such queue" in line.text
    assert not [acl for acl in found.acls if acl.endswith(("--topic q", "--topic messages"))]


@pytest.mark.parametrize("right", ["read", "configure"])
def test_a_pattern_that_covers_nothing_gives_no_right(right: str, tmp_path: Path) -> None:
    rights = {"write": "", "read": "", "configure": "", right: "^$"}
    permission = {"user": "u", "vhost": "/", **rights}
    assert imported(tmp_path, queues=[queue("q")], permissions=[permission]).acls == {}


def test_a_topic_permission_takes_the_right_to_write(tmp_path: Path) -> None:
    everything = {"user": "u", "vhost": "/", "write": ".*", "read": "", "configure": ""}
    topic = {"user": "u", "vhost": "/", "exchange": "amq.topic", "write": "^a", "read": ""}
    found = imported(
        tmp_path, queues=[queue("q"), queue("r")], bindings=[binding("amq.topic", "q", "#")],
        permissions=[everything], topic_permissions=[topic],
    )  # fmt: skip
    assert [acl.partition("--topic ")[2] for acl in found.acls] == ["r"]


@pytest.mark.parametrize(("pattern", "is_found"), [("^.$", False), ("^..$", True)])
def test_a_pattern_counts_the_bytes_of_a_name(pattern: str, is_found: bool, tmp_path: Path) -> None:
    """RabbitMQ does not ask Erlang for Unicode."""
    short = policy("p", pattern, max_length=3)
    found = imported(tmp_path, queues=[queue("é")], policies=[short])
    assert ("ring_size" in found.queues["é"]) is is_found


def test_the_type_of_a_queue_may_stand_beside_its_arguments(tmp_path: Path) -> None:
    found = imported(tmp_path, queues=[{"name": "q", "type": "quorum", "arguments": {}}])
    assert found.queues["q"]["max_attempts"] == 21


def test_an_argument_that_turns_nothing_on_needs_nothing(tmp_path: Path) -> None:
    off = {"name": "q", "arguments": {"x-single-active-consumer": False}}
    found = imported(tmp_path, queues=[off])
    [line] = [each for each in map(str, found.findings) if "single-active-consumer" in each]
    assert line == "taken over     queue q, single-active-consumer = False: nothing to do"
    assert "max_active_consumers" not in found.queues["q"]


NAMES = st.sampled_from(["a", "a.b", "b.c", "", "x y", "*.a", "amq.topic", "é"])
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 1 << 40), st.text(max_size=5), st.just([]),
    st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx", "quorum", "stream"]),
)  # fmt: skip
KEYS = st.sampled_from([
    "max-length", "max-length-bytes", "overflow", "delivery-limit", "max-priority", "message-ttl",
    "queue-type", "single-active-consumer", "dead-letter-exchange", "odd",
])  # fmt: skip
HOSTS = st.sampled_from(["/", "lab"])
PATTERNS = st.sampled_from([
    ".*", "^a", "^a\\.", "^a\\.b$", "b", "", "^$", "a\\z", "(", "[[:alpha:]]", "a{9999999999}",
])  # fmt: skip
DEFINITION = st.dictionaries(KEYS, VALUES, max_size=4)
POLICY = st.fixed_dictionaries(
    {"name": st.sampled_from(["p", "r"]), "vhost": HOSTS, "pattern": PATTERNS,
     "priority": st.integers(0, 2), "definition": DEFINITION,
     "apply-to": st.sampled_from(["all", "queues", "streams", "quorum_queues", "exchanges"])}
)  # fmt: skip
ARGUMENTS = st.dictionaries(KEYS.map("x-{}".format), VALUES, max_size=4)
FILES = st.fixed_dictionaries({
    "queues": st.lists(st.fixed_dictionaries(
        {"name": NAMES, "vhost": HOSTS, "arguments": ARGUMENTS}), max_size=4),
    "exchanges": st.lists(st.fixed_dictionaries(
        {"name": NAMES, "vhost": HOSTS,
         "type": st.sampled_from(["direct", "topic", "fanout", "headers", "x-odd"])}), max_size=3),
    "bindings": st.lists(st.fixed_dictionaries(
        {"source": NAMES, "destination": NAMES, "vhost": HOSTS, "arguments": ARGUMENTS,
         "routing_key": st.sampled_from(["", "k", "a.*", "#", "a.#.b", "it's"])}), max_size=5),
    "vhosts": st.lists(st.fixed_dictionaries({"name": HOSTS}), max_size=2),
    "users": st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2),
    "topic_permissions": st.lists(st.fixed_dictionaries(
        {"user": st.just("u"), "vhost": HOSTS, "exchange": NAMES}), max_size=2),
    "policies": st.lists(POLICY, max_size=3),
    "parameters": st.lists(POLICY.map(
        lambda value: {"component": "operator_policy", "name": "o", "vhost": value["vhost"],
                       "value": value}), max_size=2),
    "permissions": st.lists(st.fixed_dictionaries(
        {"user": st.sampled_from(["u", "a b"]), "vhost": HOSTS, "write": PATTERNS,
         "read": PATTERNS}), max_size=2),
})  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(FILES)
def test_any_definitions_give_a_line_for_each_element_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    source = folder / "definitions.json"
    source.write_text(json.dumps(data))
    found = written(folder, lambda: import_rabbitmq(source))
    if found is None:
        return
    said = Counter(each.setting for each in found.findings)
    for kind in ("queue", "exchange", "vhost", "user"):
        for name, count in Counter(each["name"] for each in data[f"{kind}s"]).items():
            assert said[f"{kind} {name}"] == count
    for name in {each["name"] for each in data["policies"]}:
        assert any(f"policy {name}" in each for each in said)
    for kind in ("binding", "permissions of", "topic permission of"):
        lines = sum(each.setting.startswith(f"{kind} ") for each in found.findings)
        assert lines == len(
            data[f"{kind.removesuffix(' of').removesuffix('s')}s".replace(" ", "_")]
        )
