"""Help for tests and demos: an embedded broker, the scenario runner, account reconciliation."""
