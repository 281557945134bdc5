"""The only place that knows pyspark."""
