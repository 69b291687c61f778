"""The data pipeline on Spark: the same rings as a job, and what their topics tell as data.

Only here is pyspark imported, and only when a job runs; it comes with the extra `ringfaust[spark]`.
"""
