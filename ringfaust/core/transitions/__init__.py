"""Every change of a partition's state. No other module changes a table or an entity.

Rules of this package
---------------------
1. If a line decides what happens to a message, it is here. `queue` answers questions about order
   and limits; `handlers` check a command and call the methods below.
2. There is no clock, no randomness, no I/O and no Kafka. The same commands at the same times give
   the same state and the same effects (R102).

Theory of operation
-------------------
A message is *scheduled*, *ready* or *delivering*. Then it leaves the queue: acked, evicted,
expired, dead, lost, removed or moved out. Each method of `Transitions` is one arrow of this graph::

    enter ──> scheduled ──come_due──> ready ──dispatch──> delivering ──acked──> gone
      └──────────────────────────────^  ^───────requeue───────┘

After each command, no ready message is left that a consumer could take. A send therefore only has
to offer the message it brought; only a command that frees credit has to look at the whole ring.

Every command runs in the same order: expire, do, dispatch, ring, limits. `Transitions.run` does it
for a command about a queue, `Transitions.enter` for a send.

Where to look
-------------
`entering`: sends, limits, due messages. `delivering`: dispatch and settles. `returning`: requeue.
`leaving`: evict, expire, die. `step`: the step in progress. The rest changes tables and entities
and decides nothing: `placement` (ready and scheduled), `deliveries`, `roster` (consumers), `queues`
(settings, pauses, wakes), `groups`, `history`, `sent_ids`, `addresses`, `xids`.
"""

from ringfaust.core.transitions.delivering import DISPATCH
from ringfaust.core.transitions.entering import LIMITS, Transitions
from ringfaust.core.transitions.sends import send_of, unsent

__all__ = ["DISPATCH", "LIMITS", "Transitions", "send_of", "unsent"]
