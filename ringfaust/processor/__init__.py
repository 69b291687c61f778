"""One partition, without I/O: records in, effects decided, records and rows out."""
