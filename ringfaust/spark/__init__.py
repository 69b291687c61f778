"""Spark jobs: the rings themselves, and what their topics contain as data.

Only this package imports pyspark, and only when a job runs. The extra `ringfaust[spark]` installs
it.
"""
