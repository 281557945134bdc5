"""The command line: a command parses, calls, renders, returns."""
