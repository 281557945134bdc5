"""Message passing along a plan (GS88 §3.2): messages, what they must not overtake, and the machine."""
