"""Java programs that ringfaust runs: finding a Java, and fetching pinned jars."""
