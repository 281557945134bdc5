"""What a client sends, without a site: order of posts, the window, what is told of what was refused or lost."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.client.sending import Room, Sender
from ordercast.client.values import AckLevel
from ordercast.errors import LocalError, LostError
from ordercast.wire.clients import MESSAGE_COST, ReceiptFrame, Welcome

Groups = tuple[str, ...]


class Twin:
    """A site that answers when the test says so, or at once."""

    def __init__(self, *, at_once: bool = True, window: int = 10_000, posts: int = 4, causal: bool = False) -> None:
        self.at_once = at_once
        self.posted: list[tuple[Groups, list[bytes], AckLevel]] = []
        self.open: list[asyncio.Future[ReceiptFrame]] = []
        self.most = 0
        self.sender = Sender(Welcome("p", [], [], 1_000_000, window, posts, causal), self.post)

    def post(self, groups: Groups, bodies: list[bytes], ack: AckLevel) -> "asyncio.Future[ReceiptFrame]":
        """Note what is posted."""
        self.posted.append((groups, bodies, ack))
        done: asyncio.Future[ReceiptFrame] = asyncio.get_running_loop().create_future()
        self.open.append(done)
        self.most = max(self.most, sum(not one.done() for one in self.open))
        if self.at_once:
            asyncio.get_running_loop().call_soon(done.set_result, ReceiptFrame(1, len(self.posted)))
        return done


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(limited())


@given(st.lists(st.tuples(st.sampled_from([("x",), ("y",), ("x", "y"), ("y", "z")]), st.booleans()), max_size=30))
def test_messages_to_a_group_in_common_keep_their_order(sent: list[tuple[Groups, bool]]) -> None:
    """Issue 12 (c): `x, x+y, x` of one sender must not overtake each other, however they are batched."""

    async def work() -> None:
        twin = Twin()
        for number, (groups, acknowledged) in enumerate(sent):
            if acknowledged:
                await twin.sender.many(groups, [b"%d" % number], "safe")
            else:
                await twin.sender.one(groups, b"%d" % number)
        await twin.sender.settle()
        got = [(int(body), groups) for groups, bodies, _ in twin.posted for body in bodies]
        for group in "xyz":
            assert [number for number, groups in got if group in groups] == [
                number for number, (groups, _) in enumerate(sent) if group in groups
            ]

    run(work)


def test_in_causal_order_nothing_overtakes_anything() -> None:
    async def work() -> None:
        twin = Twin(causal=True)
        for number in range(12):
            await twin.sender.one((("x",), ("y",))[number % 2], b"%d" % number)
        await twin.sender.settle()
        assert [int(body) for _, bodies, _ in twin.posted for body in bodies] == list(range(12))

    run(work)


def test_more_posts_than_the_site_takes_wait_their_turn() -> None:
    """Issue 12 (l): 1,100 parallel acknowledged multicasts ran into the site's bound and raised, and were delivered."""

    async def work() -> None:
        twin = Twin(posts=4, window=10**9)
        told = await asyncio.gather(*(twin.sender.many(("x",), [b"%d" % n], "safe") for n in range(1100)))
        assert [receipt.first for receipt in told] == list(range(1, 1101))
        assert twin.most == 4
        assert twin.sender.room.used == 0

    run(work)


def test_a_message_larger_than_the_window_goes_alone() -> None:
    async def work() -> None:
        twin = Twin(at_once=False, window=1000)
        first = asyncio.create_task(twin.sender.many(("x",), [bytes(10)], "safe"))
        large = asyncio.create_task(twin.sender.many(("x",), [bytes(5000)], "safe"))
        last = asyncio.create_task(twin.sender.many(("x",), [bytes(10)], "safe"))
        for number, task in enumerate((first, large, last)):
            await asyncio.sleep(0.001)
            assert len(twin.posted) == number + 1
            twin.open[-1].set_result(ReceiptFrame(1))
            await task

    run(work)


def test_who_gives_up_waiting_for_room_takes_none() -> None:
    async def work() -> None:
        room = Room(100, 10)
        await room.enter(80)
        waiting = [asyncio.create_task(room.enter(60)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        room.leave(80, 0)
        waiting[1].cancel()  # it was let in, and has not heard of it
        await asyncio.gather(*waiting, return_exceptions=True)
        assert room.used == 60 and not waiting[2].cancelled()

    run(work)


def test_who_waits_for_room_is_told_of_the_end() -> None:
    async def work() -> None:
        twin = Twin(at_once=False, window=MESSAGE_COST + 10)
        await twin.sender.one(("x",), bytes(10))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(twin.sender.one(("x",), bytes(10))) for _ in range(3)]
        await asyncio.sleep(0)
        end = LostError("gone")
        twin.sender.end(end)
        for done in twin.open:
            done.set_exception(end)
        assert [end] * 3 == await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(LostError, match="gone; 1 message was not taken"):
            await twin.sender.settle()

    run(work)


def test_a_post_that_failed_while_the_connection_lives_is_raised() -> None:
    """The site has failed and says so: that is neither a refusal nor the end of the connection, and no silence."""

    async def work() -> None:
        twin = Twin(at_once=False)
        await twin.sender.one(("x",), b"x")
        await asyncio.sleep(0)
        twin.open[0].set_exception(LostError("the disk is full"))
        with pytest.raises(LostError, match="the disk is full"):
            await twin.sender.settle()

    run(work)


def test_many_who_wait_for_room_do_not_all_go_at_once() -> None:
    """A batch more than the window may be under way, not everything that waited."""

    async def work() -> None:
        twin = Twin(at_once=False, window=100_000, posts=1000)
        sending = [asyncio.create_task(twin.sender.one(("x",), bytes(30_000))) for _ in range(100)]
        while not all(task.done() for task in sending):
            await asyncio.sleep(0)
            assert twin.sender.room.used <= 100_000 + 70_000
            for done in twin.open:
                if not done.done():
                    done.set_result(ReceiptFrame(1))
                    break
        twin.at_once = True
        for done in twin.open:
            if not done.done():
                done.set_result(ReceiptFrame(1))
        await twin.sender.settle()
        assert sum(len(bodies) for _, bodies, _ in twin.posted) == 100
        await asyncio.sleep(0)
        assert twin.sender.room.used == twin.sender.room.under_way == 0

    run(work)


def test_too_many_messages_at_once_are_refused_before_they_are_sent() -> None:
    """Issue 12 (a): the client says so itself."""

    async def work() -> None:
        twin = Twin()
        with pytest.raises(LocalError, match="70000 messages at once; at most 65536"):
            await twin.sender.many(("x",), [b""] * 70_000, "none")
        with pytest.raises(LocalError, match="no message"):
            await twin.sender.many(("x",), [], "none")
        assert twin.posted == [] and twin.sender.room.used == 0

    run(work)
