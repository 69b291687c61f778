"""Every command with a mistake: one message, exit status 2, no traceback.

The operator's commands, and what they do without mistakes, are in `test_operator.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringfaust.cli.main import main
from tests.cli.test_help import COMMANDS, name_of
from tests.cli.test_operator import MISTAKES as OPERATORS_MISTAKES

NO_FOLDER = "/nowhere cannot be used:\n  not a folder"
NO_FILE = "'/nowhere' does not exist"
MISTAKES = {
    "init x --ring-size 0 --yes": "'--ring-size'",
    "console --port 0": "'--port'",
    "console --bind rings..example": "--bind rings..example --port 6067: cannot listen there",
    "doctor --bootstrap-servers here": "'here' is not a broker's address",
    "top --bootstrap-servers 127.0.0.1:1": "No Kafka broker answers at 127.0.0.1:1",
    "run nowhere": "'nowhere' is not of the form MODULE:ATTRIBUTE, such as shop:app",
    "scenario /nowhere": "/nowhere:1: No such file",
    "demo --bootstrap-servers 127.0.0.1:1": "No Kafka broker answers at 127.0.0.1:1",
    "broker --port 0": "'--port'",
    "broker --kafka 9.9": "'9.9' is not one of '3.6', '3.9', '4.1', '4.2'",
    "mcp --token-file /nowhere": "/nowhere",
    "restore --at nowhere": "--at nowhere: write TOPIC/PARTITION=OFFSET",
    f"restore --at orders/0={'9' * 5_000}": ": write TOPIC/PARTITION=OFFSET",
    "version --long": "No such option: --long",
    "redrive --from nowhere": "'nowhere'",
    "context ls --long": "No such option: --long",
    "context use shop": "there is no context 'shop'",
    "context show": "no context is chosen",
    "context add shop": "name the application",
    "context rm shop": "there is no context 'shop'",
    "worker --config /nowhere": NO_FOLDER,
    "worker --config /nowhere ls": "write options behind ls",
    "apply --config /nowhere": NO_FOLDER,
    "diff --config /nowhere": NO_FOLDER,
    "history --bootstrap-servers here": "'here' is not a broker's address",
    "topics plan --config /nowhere": NO_FOLDER,
    "topics create --config /nowhere": NO_FOLDER,
    "topics verify --config /nowhere": NO_FOLDER,
    "config check --config /nowhere": NO_FOLDER,
    "config show --config /nowhere": NO_FOLDER,
    "import rabbitmq /nowhere --to x": NO_FILE,
    "import openmq /nowhere --to x": NO_FILE,
    "import artemis /nowhere --to x": NO_FILE,
    "spark ring --config /nowhere --checkpoint x": NO_FOLDER,
    "spark move-to-worker --config /nowhere --checkpoint x": NO_FOLDER,
    "spark lake --config /nowhere --to x": NO_FOLDER,
    "spark audit --config /nowhere": NO_FOLDER,
    "spark backfill": "Missing argument",
    "spark redrive": "Missing option '--lake'",
    "spark maintain --lake x --retention bronze=soon": "use a number of days, such as 30d",
    "spark rewind": "Missing option '--queue'",
    "spark rewind --queue x --at 1h --set evict=[a": "evict = '[a': must be one of",
    "spark rewind --queue x --at 1h --lake ~nobody-here/lake": "'--lake'",
    "spark lake --to ~nobody-here/lake": "'--to': '~nobody-here/lake'",
    "spark ring --checkpoint ~nobody-here/rings": "'--checkpoint'",
    "spark demo --flights many": "flights = 'many': must be a number",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=lambda each: name_of(each.split()))
def test_a_mistake_is_explained(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, arguments.split())
    assert (result.exit_code, "Traceback" in result.output) == (2, False), result.output
    assert MISTAKES[arguments] in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_command_is_tested_with_a_mistake() -> None:
    tested = {name_of(each.split()) for each in [*MISTAKES, *OPERATORS_MISTAKES]}
    assert tested == COMMANDS.keys()
