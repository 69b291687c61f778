"""Every change of a partition's state. No other module changes a table or an entity.

Rules of this package
---------------------
1. If a line decides what happens to a message, it is here. `queue` and `admission` answer questions
   about order and limits; `checks` decides whether a command is carried out at all.
2. There is no clock, no randomness, no I/O and no Kafka. The same commands at the same times give
   the same state and the same effects (R102).
3. A stage does not refuse its command: `checks` has accepted that (R103). Only a send has no check:
   what refuses it is `sending`, before anything has changed, or the limits of a queue (`entering`).

Theory of operation
-------------------
A message is *scheduled*, *ready* or *delivering*. Then it leaves the queue: acked, evicted,
expired, dead, lost, removed or moved out. The functions are the arrows of this graph::

    enter ──> scheduled ──come_due──> ready ──dispatch──> delivering ──acked──> gone
      └──────────────────────────────^  ^───────requeue───────┘

After each command, no ready message is left that a consumer could take. A send therefore only has
to offer the message it brought; only a command that frees credit has to look at the whole ring.

Commands keep to one order, which few need in full: expire, do, dispatch, ring, limits. A function
whose name ends in `_stage` performs one stage of a command. If the transaction becomes full, it
adds what is left to `Work.stages` (R114).

Where to look
-------------
The arrows: `entering` (sends, limits, due messages), `delivering` (dispatch and settles),
`returning` (requeue), `leaving` (evict, expire, die). All of them use `placing`, which changes the
tables and decides nothing. Around the messages: `attaching` (consumers), `queues`, `opening`. The
stages of commands: `settling`, `operating`, `sending`, `xids`, `sweeping`. At a start: `looking`.
"""
