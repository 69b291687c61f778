"""What a ring queue means: pure and deterministic, no clock, no I/O, no Kafka, no bytes.

Read in this order: `model` (entities) and `settings`; `commands` (what comes in) and `effects`
(what goes out); `transitions` (every change of state); `handlers`, which check each command and
ask for its transitions; and `engine`, which passes each command to its handler. `policy` holds
what differs with `compat: artemis`. `table`, `state`, `queue` and `address` hold the state over the
`Store` of a host.
"""
