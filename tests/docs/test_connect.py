"""docs/kafka-connect.md: the connector is JSON, and reads what ringfaust writes as it is."""

from __future__ import annotations

import json
import re

from ringfaust.protocol import headers as h
from ringfaust.protocol.names import topic_name
from ringfaust.protocol.records import Role
from tests.client.test_documents import ROOT

PAGE = (ROOT / "docs" / "kafka-connect.md").read_text()


def test_the_connector_reads_committed_records_of_the_evicted_topic_as_bytes() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    config = json.loads(block)["config"]
    assert all(isinstance(value, str) for value in config.values()), "Connect takes text alone"
    assert config["topics"] == topic_name("shop", Role.EVICTED)
    assert config["consumer.override.isolation.level"] == "read_committed"
    for part in ("key", "value", "header"):
        assert config[f"{part}.converter"].endswith(".ByteArrayConverter")


def test_the_headers_of_the_page_exist() -> None:
    named = set(re.findall(r"`(ringfaust-[a-z-]+)`", PAGE))
    known = {value for name, value in vars(h).items() if name.isupper() and isinstance(value, str)}
    assert named and named <= known
