"""`ringfaust spark ring`: the ring engine as a Structured Streaming job."""
