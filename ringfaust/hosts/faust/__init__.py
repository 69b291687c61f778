"""The Faust host: the rings as a stream worker."""
