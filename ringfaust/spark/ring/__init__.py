"""`ringfaust spark ring`: the rings themselves as a Structured Streaming job."""
