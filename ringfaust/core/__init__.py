"""What a ring queue means: pure and deterministic, no clock, no I/O, no Kafka, no bytes.

Read in this order: `model` (the nouns), `command` (what may come in), `effect` (what may go
out), `ring` (every transition of a message), then who asks for them: `consumers`, `operator`,
`addresses`, `transactions`, and `engine`, which gives each command to one of these. `table`,
`state`, `queue` and `address` hold what they read and write; a host gives them a `Store`.
"""
