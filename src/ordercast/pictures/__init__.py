"""Pictures of what we plan and run; the only place that knows matplotlib."""
