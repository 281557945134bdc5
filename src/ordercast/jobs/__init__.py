"""Jobs on Spark: the only place that knows pyspark."""
