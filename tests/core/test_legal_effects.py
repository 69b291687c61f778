"""What watches the engine in these tests notices effects and counts that are not declared."""

from __future__ import annotations

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog
from ringfaust.core.engine import Step
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.records import Payload
from tests.docs.test_protocol import DELIVERY
from tests.legal_effects import LegalEffects


def test_an_effect_that_may_not_follow_is_noticed() -> None:
    host = MemoryHost(Catalog({"q": {}}, {}))
    with pytest.raises(AssertionError, match="acked while not in the queue"):
        LegalEffects().take(Step([e.Acked("q", DELIVERY)], None), host.state)


def test_counts_that_the_effects_do_not_explain_are_noticed() -> None:
    host = MemoryHost(Catalog({"q": {}}, {}))
    host.step(c.Send("q", "m", 0, payload=Payload(None, b"", (), "in/0/0")), 0)
    queue = host.state.queue("q")
    assert queue is not None
    queue.counts.refused += 1  # which the check of the queue's own accounts does not notice
    with pytest.raises(AssertionError, match="by effects"):
        host.step(c.Send("q", "n", 0, payload=Payload(None, b"", (), "in/0/1")), 1)
