"""Find a Java runtime, and fetch pinned jars for the embedded broker and Spark."""
