"""What labels and annotations of a pod say of its gang: numbers and times, read with bounds."""

import json
import time

import pytest

from state.model.limits import ANNOTATED_MAX
from state.model.podclass import (
    Membership,
    gang_groups,
    gang_match,
    gang_mode,
    gang_wait_us,
    parse_membership,
)

GANG = "gang.scheduling.koordinator.sh/"
SIGS = "pod-group.scheduling.sigs.k8s.io"
UPSTREAM = "scheduling.x-k8s.io/pod-group"


def said(labels: dict[str, str], annotations: dict[str, str]) -> Membership:
    """What a pod with these says."""
    return parse_membership(json.dumps(labels).encode(), json.dumps(annotations).encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("1500ms", 1_500_000),
        ("10", 0),
        ("-1s", 0),
        ("1.5s", 1_500_000),
        ("1.5h", 5_400_000_000),
        ("1h0.5m", 3_630_000_000),
        (".5s", 500_000),
        ("1.s", 1_000_000),
        ("+2m", 120_000_000),
        ("250us", 250),
        ("250\u00b5s", 250),
        ("250\u03bcs", 250),
        ("1500ns", 2),
        ("1ns", 1),
        ("0s", 0),
        (".s", 0),
        ("s", 0),
        ("1.5.5s", 0),
        ("1d", 0),
        ("5 s", 0),
        ("9" * 19 + "h", ANNOTATED_MAX),
        ("9" * 20 + "h", 0),
    ],
)
def test_a_wait_time_is_microseconds_within_bounds(text: str, expected: int) -> None:
    """A Go duration, rounded up; what is none counts as not given, what is too long as the longest."""
    assert expected == gang_wait_us({f"{GANG}waiting-time": text})


@pytest.mark.parametrize(
    "text", ["1h" * 100_000, "1" * 200_000, "h" * 200_000, "1." * 100_000, "." * 200_000]
)
def test_a_long_wait_time_is_read_in_time(text: str) -> None:
    """Whoever may make a pod may not hold up the decider: the time grows with the length, not with its square."""
    began = time.process_time()
    gang_wait_us({f"{GANG}waiting-time": text})
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2", 2), ("0", 0), ("", 0), ("-2", 0), ("two", 0), ("9" * 19, ANNOTATED_MAX), ("9" * 20, 0)],
)
def test_a_count_of_members_is_a_natural_number_within_bounds(text: str, expected: int) -> None:
    """An annotation that is no number leaves the gang without one; a huge one is cut."""
    found = said({}, {f"{GANG}name": "g", f"{GANG}min-available": text})
    assert ("g", expected) == (found.gang, found.min_member)


@pytest.mark.parametrize(
    ("labels", "annotations", "gang", "from_pods"),
    [
        ({SIGS: "g"}, {}, "g", False),
        ({UPSTREAM: "g"}, {}, "g", False),
        ({f"{SIGS}/name": "g"}, {}, "g", True),
        ({}, {f"{GANG}name": "g"}, "g", True),
        ({SIGS: "", f"{SIGS}/name": "g"}, {}, "g", True),
        ({}, {}, "", False),
    ],
)
def test_each_spelling_names_the_gang(
    labels: dict[str, str], annotations: dict[str, str], gang: str, from_pods: bool
) -> None:
    """Two labels lead to a PodGroup; the older label and the annotation make a gang of the pods' own words."""
    found = said(labels, annotations)
    assert (gang, from_pods, ()) == (found.gang, found.from_pods, found.conflicts)


def test_the_first_of_several_names_counts_and_the_others_are_told() -> None:
    """Order: Koordinator's label, upstream's, the older one, the annotation (semantics 1.1)."""
    spellings = [
        (SIGS, "label", "a"),
        (UPSTREAM, "label", "b"),
        (f"{SIGS}/name", "label", "c"),
        (f"{GANG}name", "annotation", "d"),
    ]
    for at, (key, kind, name) in enumerate(spellings):
        rest = spellings[at:]
        found = said(
            {each: value for each, where, value in rest if where == "label"},
            {each: value for each, where, value in rest if where == "annotation"},
        )
        assert name == found.gang
        assert [
            f"{kind} {key} says {name}, which counts; {where} {each} says {value}"
            for each, where, value in rest[1:]
        ] == list(found.conflicts)


def test_spellings_that_agree_are_no_conflict() -> None:
    """A pod may carry the labels of both dialects."""
    assert () == said({SIGS: "g", UPSTREAM: "g"}, {f"{GANG}name": "g"}).conflicts


def test_the_label_of_a_minimum_goes_before_the_annotation() -> None:
    """Both are read; that they differ is told."""
    name = {f"{SIGS}/name": "g"}
    assert 3 == said({**name, f"{SIGS}/min-available": "3"}, {}).min_member
    found = said({**name, f"{SIGS}/min-available": "3"}, {f"{GANG}min-available": "2"})
    assert 3 == found.min_member
    assert (
        f"label {SIGS}/min-available says 3, which counts; annotation {GANG}min-available says 2"
        in found.conflicts
    )


@pytest.mark.parametrize("mode", ["", "Strict", "nonstrict", "Loose"])
def test_only_nonstrict_is_not_strict(mode: str) -> None:
    """What nobody knows is Strict."""
    assert "Strict" == gang_mode({f"{GANG}mode": mode})
    assert "NonStrict" == gang_mode({f"{GANG}mode": "NonStrict"})


@pytest.mark.parametrize("text", ["", "default/b", '"default/b"', '{"a": 1}', "[1]", "null"])
def test_partners_that_cannot_be_read_are_none(text: str) -> None:
    """The gang stands alone."""
    assert () == gang_groups({f"{GANG}groups": text})


def test_partners_are_a_sorted_set() -> None:
    """In whatever order and how often they are named."""
    named = {f"{GANG}groups": '["ns/b", "default/a", "ns/b"]'}
    assert ("default/a", "ns/b") == gang_groups(named)


def test_the_alias_of_the_match_policy_is_asked_second() -> None:
    """Either key is enough; the first one counts, and that they differ is told."""
    alias = f"{SIGS}/match-policy"
    assert "only-waiting" == gang_match({alias: "only-waiting"})
    both = {alias: "only-waiting", f"{GANG}match-policy": "waiting-and-running"}
    assert "waiting-and-running" == gang_match(both)
    assert any(alias in told for told in said({}, {**both, f"{GANG}name": "g"}).conflicts)
    assert "" == gang_match({alias: "sometimes"})
