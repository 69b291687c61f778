"""One partition, without I/O: decodes records, runs the engine, encodes outputs and rows."""
