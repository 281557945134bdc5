"""The sequencing service on fixed groups (KIN): messages, the sequencer of a part, and the machine of a site."""
