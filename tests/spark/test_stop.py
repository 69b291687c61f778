"""A stop that is asked for is not lost, wherever it comes."""

from __future__ import annotations

import signal

import pytest

from ringfaust.spark.stop import stop_requested


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_is_noted_and_interrupts_nothing(number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_requested() as asked:
        assert not asked()
        signal.raise_signal(number)
        assert asked()
        # The second one does what it always does.
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_what_takes_long_is_interrupted_and_it_is_noted_also_if_that_is_lost() -> None:
    with stop_requested(interrupt=True) as asked:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert asked()
