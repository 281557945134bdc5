"""Delivery logs in, a verdict out: one fold over the rows, exact looks where it says something is wrong."""
