"""Independent judges: they know plans and logs, never planners or machines."""
