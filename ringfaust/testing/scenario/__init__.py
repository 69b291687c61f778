"""Scenario files: the contract in executable form. See docs/scenario-format.md."""
