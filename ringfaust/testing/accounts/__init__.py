"""Account reconciliation: every record of the input topics has exactly one outcome (R100)."""
