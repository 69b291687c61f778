"""Check the accounts (R100) with Spark, from the topics or the lake: see docs/audit.md.

The audit is a second opinion: it uses none of the engine's rules, only the bookkeeping that follows
from the protocol. `ringfaust.testing.accounts` does the same for what fits into one process.
"""
