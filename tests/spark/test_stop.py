"""A requested stop is not lost, whenever the signal arrives."""

from __future__ import annotations

import signal

import pytest

from ringfaust.spark.stop import stop_requested


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_requests_a_stop_and_interrupts_nothing(number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_requested() as requested:
        assert not requested()
        signal.raise_signal(number)
        assert requested()
        # The second one has its usual effect.
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_with_interrupt_the_request_is_kept_even_if_the_exception_is_lost() -> None:
    with stop_requested(interrupt=True) as requested:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert requested()
