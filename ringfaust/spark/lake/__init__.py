"""The lake: what the topics contain, as Delta tables. docs/lake.md describes every column."""
