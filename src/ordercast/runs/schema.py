"""The run directory, said once: its tables, their columns and what kind of value each holds (docs/formats.md)."""

VERSION, VERSIONS = "2", ("1", "2")
"""What we write and what we read; a file that does not say, ours or another system's, counts as version 1."""
VERSION_KEY = b"ordercast.run"
DERIVED_KEY, DERIVED = b"ordercast.derived", b"deliveries"
"""Said by files of sends/ whose rows nobody recorded: they are what sites delivered."""
TEXT, WHOLE, BINARY, NUMBER = "string", "whole number", "binary", "number"
MANY = "strings, few of them the same"
GROUPS, LISTS, NAMES = "string or list of strings", "list of strings", "list of strings, or an empty one"

Columns = dict[str, str]

MEMBERSHIP: Columns = {"site": TEXT, "group": TEXT}
SENDS: Columns = {"msg_id": TEXT, "group": GROUPS, "source": TEXT, "source_seq": WHOLE}
SENDS_OPTIONAL: Columns = {"after": WHOLE, "body_hash": WHOLE, "post": TEXT}
DELIVERIES: Columns = {"site": TEXT, "position": WHOLE, **SENDS}
DELIVERIES_OPTIONAL: Columns = {
    "epoch": WHOLE, "order_class": TEXT, "stamp": BINARY, "prev_stamp": BINARY, "body_hash": WHOLE
}  # fmt: skip
LIVES: Columns = {"site": TEXT}
"""Where groups change: every life of a site, whatever it has done."""
CHANGES: Columns = {
    "site": TEXT, "position": WHOLE, "kind": TEXT, "group": TEXT, "epoch": WHOLE, "members": NAMES, "joined": NAMES,
    "left": NAMES, "away": NAMES, "undone_from": WHOLE,
}  # fmt: skip
"""Where groups change: what a site says in its log beside deliveries; each has a position of its own."""
DROPS: Columns = {"msg_id": TEXT, "source": TEXT, "source_seq": WHOLE}
"""Where groups change: what a site has taken and will not send, because its group is no more, or the site."""
WRITTEN: dict[str, Columns] = {
    "membership": MEMBERSHIP,
    "sends": {**SENDS, "sent_at": NUMBER, **SENDS_OPTIONAL},
    "deliveries": {**DELIVERIES, "epoch": WHOLE, "delivered_at": NUMBER, **DELIVERIES_OPTIONAL},
    "changes": CHANGES,
    "drops": DROPS,
    "lives": LIVES,
}
"""Every table with all columns that we write, in their order."""
REPEATED = ("site", "group", "source", "order_class")
"""Few different names: dictionaries on disk and in memory."""
COUNTED = ("position", "source_seq", "epoch", "after")
"""Numbers that mostly grow by one: written as differences."""
MAY_BE_NULL = ("prev_stamp",)
MAY_BE_ABSENT = ("body_hash", "post")
"""Left out of a table as a whole when some of its files lack it; an earlier version wrote those."""
CHANGING_ONLY = ("post",)
"""Written where groups change only."""
