"""Prove the accounts (R100) by Spark, from the topics or the lake: see docs/audit.md.

A second opinion, from the protocol alone: no rule of the engine is in here, only the bookkeeping of
what the topics tell. `app/account_book.py` is the same for what fits into one process.
"""
