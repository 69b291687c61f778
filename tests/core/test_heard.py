"""Time that was heard: silence, leases, and what the worker could not hear (R12, R13, R110)."""

from __future__ import annotations

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.engine import Step
from tests.core.test_engine import partition, send


def detached(step: Step) -> list[str]:
    return [each.consumer for each in step.effects if isinstance(each, e.Detached)]


def test_silence_counts_only_as_far_as_the_log_was_read() -> None:
    """R110: a sweep that has not heard a consumer looks again a second later, not at once."""
    it = partition(consumer_timeout=1_000)
    it.engine.step(c.Attach("q", "k", 1), 0)
    assert not detached(it.engine.step(c.Sweep(heard_ms=999), 5_000))
    assert it.state.next_wake_ms() == 6_000
    assert not it.engine.step(c.Sweep(), 5_999).effects
    assert detached(it.engine.step(c.Sweep(heard_ms=1_000), 6_000)) == ["k"]


def test_an_outage_of_the_brokers_is_no_silence() -> None:
    """R110: a consumer that could not reach the brokers gets its whole timeout again."""
    it = partition(consumer_timeout=1_000)
    it.engine.step(c.Attach("q", "k", 1), 0)
    assert not detached(it.engine.step(c.Sweep(heard_ms=45_000, heard_since_ms=44_001), 45_000))
    enough = c.Sweep(heard_ms=46_000, heard_since_ms=45_000)
    assert detached(it.engine.step(enough, 46_000)) == ["k"]


def test_time_acts_on_messages_though_consumers_are_not_heard() -> None:
    """R32, R50, R110: only silence waits."""
    it = partition(consumer_timeout=1_000)
    it.engine.step(c.Attach("q", "k", 0), 0)
    it.engine.step(send("q", "m")._replace(expires_at_ms=100), 0)
    (effect,) = it.engine.step(c.Sweep(heard_ms=0), 2_000).effects
    assert isinstance(effect, e.Expired)


def test_leases_of_a_state_from_before_there_were_any_end() -> None:
    """R12: nothing has planned their end; the next command about the queue does."""
    it = partition(window=1)
    it.engine.step(send("q", "m"), 0)
    queue = it.state.queues["q"]
    assert it.state.next_wake_ms() == 300_000
    it.state.wakes.delete((300_000, "q"))
    queue.wake_ms, queue.applied = 0, queue.spec.set_fields()
    it.engine.step(c.Heartbeat("q", "@window"), 5)
    assert it.state.next_wake_ms() == 300_000
    (returned, again) = it.engine.step(c.Sweep(), 300_000).effects
    assert (type(returned), type(again)) == (e.Returned, e.Dispatched)
