"""`ringfaust import rabbitmq`: what definitions.json says, in ringfaust's terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ringfaust.cli.main import main
from ringfaust.config import load, load_queues
from ringfaust.core.model import Message
from ringfaust.core.selector import compile_selector
from ringfaust.importers.imported import CannotImport, Imported, Verdict
from ringfaust.importers.rabbitmq import import_rabbitmq
from ringfaust.importers.rabbitmq_bindings import topic_selector
from ringfaust.importers.write import write
from ringfaust.protocol.records import Payload

FILE = Path(__file__).with_name("fixtures") / "definitions.json"


def test_queues_take_arguments_and_policies() -> None:
    found = import_rabbitmq(FILE)
    assert found.queues["latest"] == {"ring_size": 3, "max_attempts": -1}
    assert found.queues["orders"] == {"ring_size": 100, "max_attempts": -1}
    assert found.settings == {"sensors.#": {"ring_size": 10}}


def test_a_limit_that_rejects_is_no_ring() -> None:
    strict = import_rabbitmq(FILE).queues["strict"]
    assert strict == {
        "max_messages": 5, "max_bytes": 1_000_000, "when_full": "reject_newest",
        "max_attempts": 5, "max_active_consumers": 1, "max_backup_consumers": 100,
    }  # fmt: skip


def test_exchanges_become_addresses() -> None:
    found = import_rabbitmq(FILE)
    prices = found.addresses["events"]["subscriptions"]["prices"]
    assert prices["shared"] is True and prices["selector"].count("routing_key") == 4
    assert "audit" in found.addresses["later"]["subscriptions"]
    assert found.addresses["later"]["subscriptions"]["audit"]["selector"] == ""
    refused = [each.setting for each in found.findings if each.verdict is Verdict.NONE]
    assert any("later -> prices" in each for each in refused)
    assert any("later -> events" in each for each in refused)


def test_the_file_becomes_a_valid_configuration(tmp_path: Path) -> None:
    to = tmp_path / "to"
    done = CliRunner().invoke(main, ["import", "rabbitmq", str(FILE), "--to", str(to)])
    assert done.exit_code == 0, done.output
    assert "topsecret" not in done.output
    for said in ("mystery = 1", "message-ttl = 60000", "policy odd", "auto_delete"):
        assert said in done.output
    catalog = load(to)[1].catalog()
    assert catalog.spec("latest", {}).ring_size == 3
    assert catalog.spec("sensors.roof.1", {}).ring_size == 10
    assert "User:shop --operation Write" in (to / "acls.sh").read_text()


@pytest.mark.parametrize(("binding", "yes", "no"), [
    ("prices.#", ["prices", "prices.eu", "prices.eu.fx"], ["price", "pricesx", "a.prices"]),
    ("fx.*", ["fx.eur"], ["fx", "fx.eur.usd", "afx.b"]),
    ("*.b.*", ["a.b.c"], ["a.b", "b.c", "a.b.c.d", "a.x.b.c"]),
    ("a_b.*", ["a_b.c"], ["axb.c"]),
    ("it's", ["it's"], ["its"]),
    ("#", ["", "a.b"], []), ("*", ["a"], ["", "a.b", "."]), ("*.*", ["a.b", "."], ["", "a"]),
    ("", [""], ["a", "."]), ("a.", ["a."], ["a", "a.b"]), ("a.#", ["a", "a."], ["", "ab"]),
    (".#", [".", "..", ".a"], ["", "a", "a.b"]), ("#.", [".", "..", "a."], ["", "a"]),
    ("#.a", ["a", ".a", "b.a", "..a"], ["", "ab", "a.b"]),
    ("a.#.b", ["a.b", "a..b", "a.c.b"], ["a"]),
])  # fmt: skip
def test_a_topic_binding_matches_the_same_keys(binding: str, yes: list[str], no: list[str]) -> None:
    text = topic_selector(binding)
    assert text is not None

    def matches(key: str) -> bool:
        payload = Payload(None, b"", (("routing_key", key.encode()),), "t/0/0")
        message = Message("m", 1, 0, 4, 0, 0, 0, "", 0, 0, (), 0, payload)
        return not text or compile_selector(text).matches(message)

    assert [key for key in (*yes, *no) if matches(key)] == yes


def test_what_no_selector_can_say_is_reported() -> None:
    assert topic_selector("a.#.#") is None and topic_selector("*.#") is None


@pytest.mark.parametrize(("text", "says"), [
    ('{"queues": [\n{"name": }]}', ", line 2: not JSON"),
    ("[]", ", line 1: is not RabbitMQ's definitions"),
    ('{"queues": 5}', "queues is not a list of objects"),
    ('{"policies": [{"name": "p", "definition": 5}]}', "policies, 'p': definition is not an"),
    ('{"queues": [{"name": "\\ud800"}]}', "not JSON: it is not UTF-8"),
    ('{"queues": [{"name": 1' + "0" * 5000 + "}]}", "a number of more than 4300 digits"),
    ("[" * 100_000, "nests too deeply"),
])  # fmt: skip
def test_a_broken_file_gives_one_sentence(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "definitions.json"
    path.write_text(text)
    done = CliRunner().invoke(main, ["import", "rabbitmq", str(path), "--to", str(tmp_path / "x")])
    assert done.exit_code == 2 and says in done.stderr
    assert done.stderr.count("\n") == 1


def test_virtual_hosts_become_prefixes(tmp_path: Path) -> None:
    queues = [{"name": "q", "vhost": vhost, "arguments": {}} for vhost in ("/", "test")]
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps({"queues": queues}))
    assert set(import_rabbitmq(path).queues) == {"q", "test.q"}


@pytest.mark.parametrize(
    ("version", "kind", "attempts"),
    [
        ("3.13.7", "classic", -1), ("3.13.7", "quorum", -1), ("4.0.2", "classic", -1),
        ("4.1.0", "quorum", 21), (None, "quorum", 21), ("next", "classic", -1),
    ],
)  # fmt: skip
def test_a_queue_without_a_delivery_limit_keeps_what_it_had(
    version: str | None, kind: str, attempts: int, tmp_path: Path
) -> None:
    """A12: RabbitMQ has no limit, and since version 4 one of 20 redeliveries in quorum queues."""
    arguments = {"x-queue-type": kind}
    named = [{"name": name, "vhost": "/", "arguments": arguments} for name in ("a", "b")]
    own = {"name": "c", "vhost": "/", "arguments": {**arguments, "x-delivery-limit": 4}}
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps({"rabbit_version": version, "queues": [*named, own]}))
    found = import_rabbitmq(path)
    own_attempts = {"classic": -1, "quorum": 5}[kind]
    expected = [attempts, attempts, own_attempts]
    assert [found.queues[name].get("max_attempts") for name in "abc"] == expected
    lines = [each for each in found.findings if "without delivery-limit" in each.setting]
    assert len(lines) == 1, "one for each type"


def test_two_virtual_hosts_never_share_a_name(tmp_path: Path) -> None:
    path = tmp_path / "definitions.json"
    named = [("prod", "orders"), ("/", "prod.orders"), ("a.b", "c"), ("a", "b.c")]
    queues = [{"name": name, "vhost": vhost, "arguments": {"x-max-length": number}}
              for number, (vhost, name) in enumerate(named, 1)]  # fmt: skip
    exchanges = [{"name": f"{name}.x", "vhost": vhost, "type": "fanout"} for vhost, name in named]
    bound = [{"name": f"{name}.bound", "vhost": vhost} for vhost, name in named]
    bindings = [{"source": f"{name}.x", "destination": f"{name}.bound", "vhost": vhost}
                for vhost, name in named]  # fmt: skip
    # No queue of its own virtual host has this name, but one of another.
    bindings.append({"source": "amq.fanout", "destination": "prod.orders", "vhost": "prod"})
    bindings.append({"source": "prod.orders.x", "destination": "q", "vhost": "/"})
    path.write_text(json.dumps({"queues": [*queues, *bound], "exchanges": exchanges,
                                "bindings": bindings}))  # fmt: skip
    found = import_rabbitmq(path)
    assert {name: each["ring_size"] for name, each in found.queues.items()} == {
        "prod.orders": 2, "prod.orders-2": 1, "a.b.c": 3, "a.b.c-2": 4,
    }  # fmt: skip
    members = {name: [*each["subscriptions"]] for name, each in found.addresses.items()}
    assert members == {
        "prod.orders.x": ["prod.orders.bound"],
        "prod.orders.x-exchange": ["prod.orders.bound-2"],
        "a.b.c.x": ["a.b.c.bound"],
        "a.b.c.x-exchange": ["a.b.c.bound-2"],
    }
    changed = {each.setting: each.text for each in found.findings if "called" in each.text}
    assert "called prod.orders-2" in changed["queue orders, vhost = prod"]
    write(found, tmp_path / "to")


def written(tmp_path: Path, **definitions: Any) -> Path:
    """The folder with what an import of these definitions writes."""
    source = tmp_path / "definitions.json"
    source.write_text(json.dumps(definitions))
    write(import_rabbitmq(source), tmp_path / "to")
    return tmp_path / "to"


def test_a_queue_and_an_exchange_of_one_name_are_two(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        queues=[{"name": "ledger", "vhost": "/"}, {"name": "copies", "vhost": "/"}],
        exchanges=[{"name": "ledger", "vhost": "/", "type": "fanout"}],
        bindings=[{"source": "ledger", "vhost": "/", "destination": "copies",
                   "destination_type": "queue", "routing_key": "", "arguments": {}}],
    )  # fmt: skip
    queues = load_queues(folder / "queues.yaml")
    assert [*queues.queues] == ["ledger"]
    assert [*queues.addresses] == ["ledger-exchange"]


def test_permissions_stay_in_their_virtual_host(tmp_path: Path) -> None:
    permission = {"user": "intern", "vhost": "lab", "configure": "", "write": ".*", "read": ""}
    folder = written(
        tmp_path, permissions=[permission],
        queues=[{"name": "payroll", "vhost": "/"}, {"name": "rats", "vhost": "lab"}],
    )  # fmt: skip
    acls = (folder / "acls.sh").read_text()
    assert "--topic lab.rats" in acls
    assert "payroll" not in acls


@pytest.mark.parametrize("name", ["a\nrm -rf x\n#.json", "a\r\u2028\x1b.json", "{source}.json"])
def test_the_name_of_a_file_stays_in_its_comment(name: str, tmp_path: Path) -> None:
    source = tmp_path / name
    source.write_text(json.dumps({
        "queues": [{"name": "q", "vhost": "/"}],
        "permissions": [{"user": "u", "vhost": "/", "write": ".*", "read": ".*"}],
    }))  # fmt: skip
    write(import_rabbitmq(source), tmp_path / "to")
    for file in ("acls.sh", "queues.yaml"):
        lines = (tmp_path / "to" / file).read_text().splitlines()
        assert not any(line.startswith("rm") for line in lines)
        assert all(line.isprintable() for line in lines)
    assert load_queues(tmp_path / "to" / "queues.yaml").queues


def test_nothing_is_left_of_files_that_would_not_be_valid(tmp_path: Path) -> None:
    imported = Imported(Path("definitions.json"))
    imported.queues["a"], imported.addresses["a"] = {}, {}
    imported.add_routes()
    with pytest.raises(CannotImport, match=r"definitions.json: nothing was written: .*address"):
        write(imported, tmp_path / "to")
    assert not [*(tmp_path / "to").iterdir()]


@pytest.mark.parametrize(("kind", "arguments", "verdict", "says"), [
    ("headers", {"x-match": "all", "kind": "a"}, Verdict.TAKEN, "the headers it names"),
    ("headers", {"x-match": "any", "n": 3}, Verdict.TAKEN, "only headers that are texts"),
    ("x-consistent-hash", {}, Verdict.CHANGED, "an exchange of type x-consistent-hash"),
])  # fmt: skip
def test_a_binding_says_what_its_exchange_decides_by(
    kind: str, arguments: dict[str, Any], verdict: Verdict, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "definitions.json"
    bound = {"source": "e", "vhost": "/", "destination": "q", "arguments": arguments}
    definitions = {
        "queues": [{"name": "q", "vhost": "/"}],
        "exchanges": [{"name": "e", "vhost": "/", "type": kind}],
        "bindings": [{**bound, "destination_type": "queue", "routing_key": "1"}],
    }
    path.write_text(json.dumps(definitions))
    found = import_rabbitmq(path).findings
    (of_binding,) = [each for each in found if each.setting.startswith("binding e")]
    (of_exchange,) = [each for each in found if each.setting.startswith("exchange e")]
    assert says in of_binding.text and of_exchange.verdict is verdict
