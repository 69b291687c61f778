"""docs/protocol.md says what the code does: commands, headers, events, reasons, limits."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ringfaust.config import WorkerConfig
from ringfaust.core import effects as e
from ringfaust.core.model import (
    AckMode,
    Counts,
    DeadReason,
    Delivery,
    EvictReason,
    Message,
    Refusal,
    due_position,
)
from ringfaust.core.settings import QueueSpec
from ringfaust.errors import ProtocolError
from ringfaust.java.jars import KAFKA, fetch
from ringfaust.protocol import control, events
from ringfaust.protocol import headers as h
from ringfaust.protocol import outputs as output
from ringfaust.protocol.records import FetchedRecord, Payload, Role
from ringfaust.protocol.status import RATES, QueueState, write_queue_status
from tests.processor.test_queries import Partition

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
EXAMPLES = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
HEADERS = {
    value for name, value in vars(h).items() if name.isupper() and isinstance(value, str)
} - {h.PREFIX}
UNDECODABLE_REASONS = {ProtocolError("").reason, "too_large", "skipped"}


def table(heading: str, first: str) -> dict[str, list[str]]:
    """The table under a heading whose first column is so called: its rows by their first cell."""
    section = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section is not None, heading
    rows: dict[str, list[str]] = {}
    found = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", section[1], re.MULTILINE)
    assert found is not None, f"no table with {first} under {heading}"
    for line in found[1].splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        rows[re.sub(r"^`([^`]*)`$", r"\1", cells[0])] = cells[1:]
    return rows


# --- commands -----------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_is_a_command(example: str) -> None:
    assert control.read_control(example.encode()).type == json.loads(example)["type"]


def test_the_examples_show_each_command_once() -> None:
    types = sorted(json.loads(example)["type"] for example in EXAMPLES)
    assert types == sorted(control.MODELS)


def test_the_examples_show_each_field() -> None:
    shown = {json.loads(example)["type"]: json.loads(example).keys() for example in EXAMPLES}
    for name, model in control.MODELS.items():
        for field in model.model_fields.keys() - {"v", "reply"} - shown[name]:
            assert f"`{field}`" in PAGE, f"{field} of {name}"


def test_commands_for_kcat_are_commands() -> None:
    commands = re.findall(r"^echo '(\{.*?\})'", PAGE, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        control.read_control(command.encode())


def test_ack_modes() -> None:
    for mode in AckMode:
        assert f"`{mode}`" in PAGE


def test_the_questions_are_listed() -> None:
    listed = re.search(r"Questions \((.*?)\) produce no event", PAGE)
    assert listed is not None
    questions = [control.type_of(each) for each in control.QUERIES if each not in control.ORDERS]
    assert re.findall(r"`(\w+)`", listed[1]) == questions


# --- names --------------------------------------------------------------------------------------


def test_headers_are_those_of_the_code() -> None:
    assert set(re.findall(r"ringfaust-[a-z][a-z-]*", PAGE)) == HEADERS
    assert f"`{h.PREFIX}`" in PAGE


def test_topics_are_the_roles() -> None:
    topics = table("Topics", "role")
    assert topics.keys() == set(Role)
    own = {name: cells[0] for name, cells in topics.items() if name != Role.PRODUCER}
    assert own == {name: f"`{WorkerConfig().topic(name)}`" for name in own}


def test_the_fields_of_a_queues_status_are_those_of_the_code() -> None:
    state = QueueState(Counts().stored(), (), 0, 0, "{}")
    row = write_queue_status(
        state, partition=0, time_ms=1, oldest_ms=0, rates={}, evicted_by={}
    )  # fmt: skip
    assert [*table("Status", "field")] == [*json.loads(row)]
    assert all(f"`{name}`" in table("Status", "field")["rates"][0] for name in RATES)


def test_reasons_are_those_of_the_code() -> None:
    assert table("Refusals", "reason").keys() == set(Refusal)
    assert table("Evicted", "reason").keys() == set(EvictReason)
    assert table("Dead and undecodable", "reason").keys() == {*DeadReason, *UNDECODABLE_REASONS}


# --- outputs ------------------------------------------------------------------------------------

MESSAGE = Message(
    "id", 1, due_position(5, 1), 4, 1, 9, 5, "group", 2, 2, ("me",), 80,
    Payload(
        b"key", b"value", (("theirs", b"1"), (h.PROPERTIES, b"{}"), (h.REDRIVES, b"1")), "in/0/0"
    ),
    persistent=False,
)  # fmt: skip
DELIVERY = Delivery(1, "me", MESSAGE, 2)
EFFECTS: tuple[e.Effect, ...] = (
    e.Added("q", MESSAGE),
    e.Scheduled("q", MESSAGE),
    e.Due("q", MESSAGE),
    e.Dispatched("q", DELIVERY),
    e.Acked("q", DELIVERY),
    e.Returned("q", DELIVERY, MESSAGE, 5),
    e.Evicted("q", MESSAGE, EvictReason.OVERFLOW, "cause", 3, 3, 7, "full"),
    e.Expired("q", MESSAGE, "me"),
    e.Dead("q", MESSAGE, DeadReason.REJECTED, "me", "text"),
    e.Lost("q", MESSAGE),
    e.Unrouted("q", MESSAGE),
    e.Pending("q", "xid", "id"),
    e.Decided("", "xid", True),
    e.ConfiguredAddress("q", {}),
    e.Removed("q", MESSAGE),
    e.MovedOut("q", MESSAGE, "other"),
    e.Attached("q", "me", True, 0),
    e.Detached("q", "me", False),
    e.Configured("q", {}, True),
    e.Paused("q", "dispatch", True),
    e.Applied("", 3, "ann", "text"),
    e.Deleted("q", Counts().as_dict()),
    e.Refused("q", Refusal.BAD_COMMAND, "me", "text"),
)


def outputs() -> dict[str, list[tuple[str, bytes]]]:
    by_kind: dict[type, Any] = {type(effect): effect for effect in EFFECTS}
    return {
        "dispatched": output.dispatched_record(by_kind[e.Dispatched])[2],
        "evicted": output.evicted_record(by_kind[e.Evicted])[2],
        "dead": output.dead_record(by_kind[e.Dead], 7)[2],
        "unreadable": output.undecodable_record(
            FetchedRecord("in"), "in/0/0", ProtocolError(""), 7
        )[2],
    }


@pytest.mark.parametrize("kind", outputs())
def test_outputs_have_the_headers_of_the_table(kind: str) -> None:
    column = list(outputs()).index(kind)
    result = {name for name, cells in table("What comes out", "header").items() if cells[column]}
    assert result == {name for name, _ in outputs()[kind] if name.startswith(h.PREFIX)}


def test_replies_are_as_shown() -> None:
    shown = [json.loads(text) for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)]
    done, attached, refused, late, sent, listed, queues, browsed, used, xids = shown
    assert json.loads(output.reply_record("me", None)[1] or b"") == done
    assert attached["answer"] == {"consumer_timeout_ms": QueueSpec().consumer_timeout}
    no = e.Refused("q", Refusal(refused["reason"]), refused["about"], refused["text"])
    assert json.loads(output.reply_record("me", no)[1] or b"") == refused
    no = e.Refused("q", Refusal(late["reason"]), late["about"], late["text"], late["delivery"])
    assert json.loads(output.reply_record("me", no)[1] or b"") == late
    no = e.Refused(sent["queue"], Refusal(sent["reason"]), sent["about"], sent["text"])
    key, value, _ = output.refused_send_record(sent["about"], no, sent["by"])
    assert (key, json.loads(value or b"")) == (sent["about"].encode(), sent)
    assert listed["answer"]["counts"].keys() == Counts().as_dict().keys()
    partition = Partition()
    partition.send("orders", "order-17")
    partition.ask("attach", queue="orders", consumer="billing-1", credit=1)
    listing = partition.answer("list", queue="orders")
    assert listed["answer"].keys() == listing.keys()
    assert listed["answer"]["settings"].items() <= {**listing["settings"], "ring_size": 100}.items()
    assert listed["answer"]["consumers"][0].keys() == listing["consumers"][0].keys()
    shown_queue = queues["answer"]["queues"][0]
    assert shown_queue.keys() == partition.answer("list_queues")["queues"][0].keys()
    partition.send("orders", "order-18")
    message = partition.answer("browse", queue="orders")["messages"][0]
    assert browsed["answer"]["messages"][0].keys() == message.keys()
    partition.ask("begin", xid="transfer-7")
    (xid,) = partition.answer("list_xids")["xids"]
    assert xids["answer"]["xids"][0].keys() == xid.keys()
    partition.ask("apply", revision=3, configuration=used["answer"]["document"])
    assert used["answer"].keys() == partition.answer("show_configuration").keys()


def test_a_refused_sends_line_says_where_it_came_from() -> None:
    refused = e.Dead("q", MESSAGE._replace(sequence=0), DeadReason.LIMIT, "", "text")
    line = json.loads(events.WRITERS[e.Dead](refused, 1) + events.event_tail(7, "in/0/0"))
    assert (line["sequence"], line["source"]) == (0, "in/0/0")


def test_the_limit_of_a_list_is_that_of_the_page() -> None:
    shown = table("Limits", "what")["messages of each state in the answer to `list`"][0]
    most = int(shown.replace(",", ""))
    command = '{"type": "list", "queue": "orders", "limit": %d}'
    control.read_control((command % most).encode())
    with pytest.raises(ProtocolError):
        control.read_control((command % (most + 1)).encode())


# --- Java ---------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_the_java_consumer_compiles(tmp_path: Path) -> None:
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("needs a JDK; Java alone has no compiler")
    (source,) = re.findall(r"```java\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "Billing.java").write_text(source)
    (jar,) = fetch(KAFKA).glob("kafka-clients-*.jar")
    command = [javac, "-Xlint:all", "-Werror", "-cp", str(jar), "-d", str(tmp_path)]
    done = subprocess.run(
        [*command, str(tmp_path / "Billing.java")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
