"""Hypothesis strategies for memberships and seeds."""

from hypothesis import strategies as st

from ordercast.membership.table import Membership


def memberships(max_sites: int = 8, max_groups: int = 6) -> st.SearchStrategy[Membership]:
    """Draw any membership of up to so many sites and groups."""
    sites = [f"s{index}" for index in range(max_sites)]
    group = st.sets(st.sampled_from(sites), min_size=1)
    return st.lists(group, min_size=1, max_size=max_groups).map(
        lambda groups: Membership.of({f"g{index}": members for index, members in enumerate(groups)})
    )


def seeds() -> st.SearchStrategy[int]:
    """Draw a seed."""
    return st.integers(0, 2**32 - 1)
