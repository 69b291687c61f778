"""What a ring queue means: pure and deterministic, no clock, no I/O, no Kafka, no bytes.

Read in this order: `model` (entities) and `settings`; `commands` (what comes in) and `effects`
(what goes out); `engine`, which has each command checked and its stages performed; `checks`, which
refuse a command or return its stages; and `transitions` (every change of state). `policy` holds
what differs with `compat: artemis`. `table`, `state`, `queue` and `address` hold the state over the
`Store` of a host, and `work` the step in progress.
"""
