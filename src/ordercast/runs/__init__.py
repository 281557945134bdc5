"""The run directory, said once."""
