"""The deterministic world: virtual time, one random source, links that delay, lose, double and cut."""
