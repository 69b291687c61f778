"""Which uses of a session make a scenario file invalid, and which do not (R80)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfaust.testing.scenario.memory import MemoryScenarioHost
from ringfaust.testing.scenario.player import play
from ringfaust.testing.scenario.reading import BadScenario, load

HEAD = """\
id: sessions
says: Sessions of consumers that move.
rules: [R80]
queues: {orders: {}, returns: {}}
addresses: {news: {subscriptions: {sport: {}}}}
steps:
  - send: {queue: orders, ids: [A]}
  - send: {queue: returns, ids: [B]}
  - attach: {consumer: c1, queue: orders, credit: 1}
"""
DETACH = "  - detach: {consumer: c1}\n"
ATTACH = "  - attach: {consumer: c1, queue: returns, credit: 1}\n"
MOVE = DETACH + ATTACH
BEGIN = "  - begin: {session: s}\n"
SEND = "  - send: {queue: orders, ids: [C], session: s}\n"
ACK_A = "  - ack: {consumer: c1, ids: [A], session: s}\n"
ACK_B = "  - ack: {consumer: c1, ids: [B], session: s}\n"
COMMIT = "  - commit: {session: s}\n"
REFUSED = "    expect: {refused: [{reason: bad_command}]}\n"

VALID = {
    "it moves, then settles": BEGIN + MOVE + SEND + ACK_B + COMMIT,
    "it moves, then settles before the send": MOVE + BEGIN + ACK_B + SEND + COMMIT,
    "it moves between the send and the settle": BEGIN + SEND + MOVE + ACK_B + COMMIT,
    "it attaches in the session": BEGIN + MOVE.replace("t: 1}", "t: 1, session: s}") + SEND + ACK_B,
    "it attaches to a second queue": BEGIN + SEND + ATTACH + ACK_B + COMMIT,
    "it settles, then moves to the queue that the next session sends to": MOVE + BEGIN + ACK_B
    + COMMIT + MOVE.replace("returns", "orders") + BEGIN + SEND + COMMIT,
    "the settle is pending at the other of its two queues": BEGIN + ACK_A + ATTACH
    + DETACH + COMMIT,
    "the session is not open": SEND + REFUSED + ACK_A + REFUSED + MOVE,
    "the session has ended": BEGIN + COMMIT + SEND + REFUSED + ACK_A + REFUSED + MOVE,
    "the second settle was refused": BEGIN + BEGIN.replace("s}", "t}") + ACK_A
    + ACK_A.replace("s}", "t}") + REFUSED.replace("bad_command", "stale_delivery") + COMMIT + MOVE,
    "two sessions": BEGIN + BEGIN.replace("s}", "t}") + SEND + ACK_A.replace("s}", "t}"),
}  # fmt: skip
BOTH = "session s both sends to orders and settles on it"
PENDING = "c1 has an ack pending in a session: it cannot "
INVALID = {
    "it sends, then settles": (BEGIN + SEND + ACK_A, BOTH),
    "it settles, then sends": (BEGIN + ACK_A + SEND, BOTH),
    "it moves to the queue sent to": (
        MOVE + BEGIN + SEND + MOVE.replace("returns", "orders") + ACK_A, BOTH,
    ),
    "its attach to another queue is refused": (
        BEGIN + SEND
        + '  - attach: {consumer: c1, queue: returns, credit: 1, selector: "="}\n'
        + REFUSED.replace("bad_command", "bad_selector") + ACK_A, BOTH,
    ),
    "its attach after the settle": (
        BEGIN + ACK_A + ATTACH + SEND, BOTH,
    ),
    "the open session is begun again": (BEGIN + SEND + BEGIN + REFUSED + ACK_A, BOTH),
    "it sends to the address of the queue": (
        BEGIN + "  - send: {address: news, ids: [N], session: s}\n"
        "  - attach: {consumer: c2, queue: 'news::sport', credit: 1}\n"
        "  - ack: {consumer: c2, ids: [M], session: s}\n",
        "session s both sends to news and settles on it",
    ),
    "it detaches before the commit": (BEGIN + ACK_A + DETACH, PENDING + "detach"),
    "it recovers before the commit": (
        BEGIN + ACK_A + "  - recover: {consumer: c1}\n", PENDING + "recover",
    ),
    "it detaches where it moved to": (BEGIN + MOVE + ACK_B + DETACH, PENDING + "detach"),
}  # fmt: skip


def written(folder: Path, steps: str) -> Path:
    path = folder / "sessions.yaml"
    path.write_text(HEAD + steps)
    return path


@pytest.mark.parametrize("steps", VALID.values(), ids=VALID)
def test_a_session_that_kafka_can_order_is_valid(tmp_path: Path, steps: str) -> None:
    play(load(written(tmp_path, steps)), MemoryScenarioHost())


@pytest.mark.parametrize(("steps", "reason"), INVALID.values(), ids=INVALID)
def test_a_session_that_kafka_cannot_order_is_not_valid(
    tmp_path: Path, steps: str, reason: str
) -> None:
    path = written(tmp_path, steps)
    with pytest.raises(BadScenario) as caught:
        load(path)
    last_line = path.read_text().count("\n")
    assert str(caught.value) == f"{path}:{last_line}: {reason}"
