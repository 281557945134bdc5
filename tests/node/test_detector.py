"""The failure detector counts beats of its own site."""

from ordercast.epochs.events import Suspected, Trusted
from ordercast.node.detector import Detector


def test_who_is_not_linked_for_some_beats_is_suspected_and_trusted_when_it_is_back() -> None:
    detector = Detector(3)
    said = [list(detector.beat("pq", "p", ())) for _ in range(3)]

    assert said == [[], [], [Suspected("q")]]
    assert list(detector.beat("pq", "p", "q")) == []
    assert list(detector.beat("pq", "pq", "q")) == [Trusted("q")]
    assert [list(detector.beat("pq", "p", ())) for _ in range(2)] == [[], []]


def test_a_link_that_was_given_up_for_silence_counts_at_once() -> None:
    detector = Detector(10)
    detector.silent("q")

    assert list(detector.beat("q", "", ())) == [Suspected("q")]


def test_a_site_that_stood_still_suspects_nobody() -> None:
    """It counts no beats meanwhile, however much time has passed."""
    detector = Detector(2)

    assert list(detector.beat("q", "", ())) == []
    assert list(detector.beat("q", "q", ())) == []
    assert list(detector.beat("q", "", ())) == []
