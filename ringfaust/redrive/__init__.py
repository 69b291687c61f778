"""Send dead and evicted messages again, each once (R43)."""
