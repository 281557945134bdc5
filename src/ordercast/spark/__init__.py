"""The only place that knows pyspark; what stands here is for sessions of your own (docs/spark.md)."""

from typing import TYPE_CHECKING

from ordercast.spark.library import Planned, as_frame, audit, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Planned", "as_frame", "audit", "plan", "register"]


def register(spark: "SparkSession") -> None:
    """Let a session read and write `format("ordercast")`: what sites deliver, and messages to groups."""
    from ordercast.spark.datasource import register as load  # needs pyspark, which the others import when called

    load(spark)
