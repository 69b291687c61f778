"""One partition: its task, what the task does with records, and what it counts and logs."""
