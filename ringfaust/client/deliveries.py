"""Which deliveries a consumer has handed out, so that none is handed out twice (R118)."""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED = 10_000
"""Numbers of deliveries remembered exactly. That is about one megabyte."""


class SeenDeliveries:
    """The numbers of the deliveries of one partition that a consumer has handed out.

    A worker writes each delivery once. A Spark job may write records again: an interrupted
    micro-batch leaves a part of its records in the topic, and its repetition writes them all.
    """

    def __init__(self) -> None:
        # To find the first key of a plain dict, Python passes over all that were removed before it.
        self._numbers: OrderedDict[int, None] = OrderedDict()
        """In the order in which they were seen."""
        self._forgotten = 0
        """Numbers up to this one count as seen. The deliveries of a partition count up."""

    def is_new(self, number: int) -> bool:
        """Whether this is the first record of a delivery. It counts as seen from now on."""
        if number <= self._forgotten or number in self._numbers:
            return False
        self._numbers[number] = None
        if len(self._numbers) > REMEMBERED:
            oldest, _ = self._numbers.popitem(last=False)
            self._forgotten = max(self._forgotten, oldest)
        return True
