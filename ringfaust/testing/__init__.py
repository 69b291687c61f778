"""An embedded broker, the scenario runner and the account reconciliation, for tests and demos."""
