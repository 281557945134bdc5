"""The only place that knows pyspark; `audit` and `plan` are for sessions of your own (docs/spark.md)."""

from ordercast.spark.library import Planned, as_frame, audit, plan

__all__ = ["Planned", "as_frame", "audit", "plan"]
