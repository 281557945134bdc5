"""Distributed swap and counting over spanning trees (HTW00)."""
