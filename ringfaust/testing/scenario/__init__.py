"""Scenario files, the executable form of the contract. See docs/scenario-format.md."""
