"""One table of tags: each number is one kind of frame, for ever."""

from typing import Any

from ordercast.wire import clients, codec, peers
from ordercast.wire.tags import FIRST_OF_SITES, Tag


def test_every_tag_is_bound_to_one_kind_and_every_kind_to_one_tag() -> None:
    tables: list[dict[int, Any]] = [codec.KINDS, peers.KINDS, clients.FROM_CLIENT, clients.FROM_SITE]
    bound = [tag for table in tables for tag in table]
    kinds = [kind for table in tables for kind in table.values()]

    assert len(set(bound)) == len(bound) and len(set(kinds)) == len(kinds)
    assert set(Tag) == {*bound, Tag.HEARTBEAT}
    assert all(tag < FIRST_OF_SITES for tag in codec.KINDS)
    assert all(tag >= FIRST_OF_SITES for table in tables[1:] for tag in table)


def test_numbers_are_never_changed_or_used_again() -> None:
    """Add a tag: add its number here. Take one away: leave the number here, and give it to nothing else."""
    given = (
        "propagate=1 place=2 settled=3 close=4 propagate_body=5 ack=10 null=11 resend=12 resume=13"
        " propose=20 proposal=21 decide=22 stamped=30 ask_clock=31 silent=32 swap=40 request=41 ordered=42 found=43"
        " ask_count=50 count=51 grant=52 numbered=53"
        " do_multicast=60 accept=61 accepted=62 fetch=63 latest=64 stable=65 end=66 ask_end=67 direct=68"
        " prepare=70 promise=71 vote=72 voted=73 outvoted=74 decided=75 at=76 wish=77 request_done=78 stop=79"
        " report=80 fetch_bodies=81 body=82 installed=83 done=84 ask_state=85 state=86 have=89 all_have=90"
        " ask_safe=91 whereabouts=92 ask_installed=93 ask_done=94 ask_have=95 released=96 ready=97 began=98"
        " hello=100 refuse=101 heartbeat=102"
        " login=110 welcome=111 join=112 lot=113 taken=114 leave=115 post=116 receipt=117 ask=118 answer=119 error=120"
        " dropped=121 change=122 want_state=123 give_state=124"
    )
    known = dict(one.split("=") for one in given.split())

    for tag in Tag:
        assert known.get(tag.name.lower()) == str(tag.value), f"{tag.name} is new, or was given another number"
