"""Groups that change and sites that fail: configurations, the council that decides on them, closing, opening, healing."""
