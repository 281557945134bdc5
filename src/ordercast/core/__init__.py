"""Parts shared by machines: events, effects, envelopes, numbered edges, hold-back. No protocol of its own."""
