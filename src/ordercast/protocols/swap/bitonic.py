"""A bitonic counting network (Aspnes, Herlihy and Shavit 1994): the way to count without a bottleneck (HTW00 §6).

A *balancer* has two inputs and two outputs, and sends what comes in alternately to its upper and its lower output. A
network of balancers with `width` inputs and outputs *counts* when its outputs differ by one at most, the upper ones
first, as soon as nothing is under way. Behind output i stands a counter that gives i, i + width, i + 2 width and so on:
so many requests get so many numbers without a gap, and no place sees all of them. A later request may get a smaller
number than one that is still under way: who counts twice must wait for the first number.

It orders nothing in this project: it is here to be measured beside the swap objects (`benchmarks.swap_latency`).
"""

from dataclasses import dataclass

from ordercast.errors import InputError


@dataclass(eq=False)
class Counter:
    """What stands behind an output."""

    place: int
    """Its number among all nodes of the network: they are spread over sites by it."""
    next: int
    width: int

    def count(self) -> int:
        """Give a number."""
        given, self.next = self.next, self.next + self.width
        return given


@dataclass(eq=False)
class Balancer:
    """What sends requests alternately up and down."""

    place: int
    outputs: "tuple[Node, Node]"
    down: bool = False

    def step(self) -> "Node":
        """Return where the next request goes."""
        chosen, self.down = self.outputs[self.down], not self.down
        return chosen


Node = Balancer | Counter


class Bitonic:
    """The network. It is built from its outputs to its inputs."""

    def __init__(self, width: int) -> None:
        """`width` is a power of two."""
        if width < 1 or width & (width - 1):
            raise InputError(f"a counting network has a width of 1, 2, 4, 8 ..., not {width}")
        self.nodes = 0
        counters: list[Node] = [Counter(self._place(), wire, width) for wire in range(width)]
        self.inputs = self._bitonic(counters)

    def _place(self) -> int:
        self.nodes += 1
        return self.nodes - 1

    def _bitonic(self, outputs: list[Node]) -> list[Node]:
        """Return the inputs of a network with these outputs: two of half the width, and a merger behind them."""
        if len(outputs) == 1:
            return outputs
        upper, lower = self._merger(outputs)
        return self._bitonic(upper) + self._bitonic(lower)

    def _merger(self, outputs: list[Node]) -> tuple[list[Node], list[Node]]:
        """Return both halves of the inputs of a merger: what was counted apart above and below is counted together."""
        pairs = zip(outputs[::2], outputs[1::2], strict=True)
        last: list[Node] = [Balancer(self._place(), pair) for pair in pairs]
        if len(outputs) == 2:
            return last, last
        even_above, odd_below = self._merger(last)
        odd_above, even_below = self._merger(last)
        above = [node for pair in zip(even_above, odd_above, strict=True) for node in pair]
        below = [node for pair in zip(even_below, odd_below, strict=True) for node in pair]
        return above, below

    @property
    def depth(self) -> int:
        """How many balancers a request passes."""
        many, node = 0, self.inputs[0]
        while isinstance(node, Balancer):
            many, node = many + 1, node.outputs[0]
        return many
