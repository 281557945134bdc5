"""Delivery logs of other systems become run directories: a mapping says which field is what."""
