"""The HTTP API of a real worker: the examples of docs/http-api.md, and a configuration applied."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ringfaust.testing.broker import free_port
from tests.broker.clients import client_of
from tests.chaos.harness import Application
from tests.console.harness import READ_TOKEN, TOKEN
from tests.docs.pages import ROOT

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="no curl or jq"),
]
QUEUES = {"orders.new": {"ring_size": 3}, "orders.parked": {"ring_size": 100}}
PAGE = (ROOT / "docs/http-api.md").read_text("utf-8")


def examples() -> list[tuple[str, str]]:
    """Each command of the page, and what it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    steps = [each for block in blocks for each in re.split(r"^\$ ", block, flags=re.M) if each]
    return [(command, output) for command, _, output in (each.partition("\n") for each in steps)]


async def test_the_examples_of_the_page_work_and_roles_hold(
    app: Application, tmp_path: Path
) -> None:
    port = free_port()
    files = {"token_file": TOKEN, "read_token_file": READ_TOKEN}
    web: dict[str, Any] = {"enabled": True, "port": port}
    for name, token in files.items():
        (tmp_path / name).write_text(token)
        web[name] = str(tmp_path / name)
    settings = app.worker_config.model_dump(
        mode="json", include={"application", "bootstrap_servers", "partitions"}
    )
    app.write("worker.yaml", settings | {"web": web})
    app.new_worker()
    async with client_of(app) as client:
        await client.send(app.inputs[0], ["o-0", "o-1", "o-2", "o-3"], "orders.new")
        await client.until_ready("orders.new", "o-1", "o-2", "o-3")
    api = f"http://127.0.0.1:{port}/console/api/v1"
    for command, output in examples():
        if command.startswith("API="):
            continue
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command, stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"API": api, "TOKEN": TOKEN},
        )  # fmt: skip
        said = (await process.communicate())[0].decode()
        expected = ".*".join(map(re.escape, output.split("…")))
        assert re.fullmatch(expected, said), f"{command}\n{said}"

    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as web_client:

        async def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
            async with web_client.post(api + path, json=body) as answer:
                return answer.status, await answer.json(content_type=None)

        async def get(path: str) -> Any:
            async with web_client.get(api + path) as answer:
                return await answer.json(content_type=None)

        document = (await get("/configuration"))["0"]["document"]
        document["queues"]["orders.new"]["ring_size"] = 7
        status, applied = await post("/apply", {"document": document, "text": "smaller"})
        assert (status, applied) == (200, {"revision": 1, "partitions": [0], "waiting": []})
        newest = (await get("/history"))["items"][-1]
        assert (newest["who"], newest["text"]) == ("http-api", "smaller")
        status, refused = await post("/configure", {"queue": "orders.new", "settings": {"ring": 1}})
        assert (status, refused["type"]) == (400, "urn:ringfaust:problem:bad_command")
        assert refused["errors"][0]["field"]
        for path, body in (
            ("/browse-page?queue=orders.new&partition=99", None),
            ("/create-queue", {"queue": "new", "partition": 99}),
        ):
            found = await get(path) if body is None else (await post(path, body))[1]
            assert found["status"] == 400, found
            assert "partition" in found["detail"]
        reader = {"Authorization": f"Bearer {READ_TOKEN}"}
        async with web_client.post(
            f"{api}/purge", json={"queue": "orders.parked"}, headers=reader
        ) as answer:
            assert answer.status == 403
        assert (await get("/queue?queue=orders.parked"))["counts"]["ready"] == 3
