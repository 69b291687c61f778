"""The lake: what the topics tell, as Delta tables. See docs/lake.md for every column."""
