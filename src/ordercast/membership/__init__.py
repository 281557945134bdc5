"""Who is in which group: tables, and the one reader of the files they come from."""
