"""Scenario files: the contract in executable form. The grammar is docs/scenario-format.md."""
