"""Benchmarks that users run."""
