"""Groups that change and sites that fail: configurations, the council, closing, opening, healing."""
