"""The handlers of commands, by subject. Each checks its command and asks `transitions`."""
