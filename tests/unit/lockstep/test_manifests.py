"""Manifests: YAML as Kubernetes reads it, and what a hostile file costs."""

import json
import time
from pathlib import Path

import pytest

from lockstep.manifests import ALIASED_MAX, read_documents
from schemas.errors import LockstepError


def read(tmp_path: Path, text: str) -> list[dict[str, object]]:
    """The documents of a file with this text."""
    file = tmp_path / "play.yaml"
    file.write_text(text, encoding="utf-8")
    return [document.raw for document in read_documents([str(file)])]


def bomb(levels: int, width: int, form: str) -> str:
    """Each level names the one below `width` times."""
    lines = ["l0: &l0 {k: v}"]
    for level in range(1, levels + 1):
        names = ", ".join([f"*l{level - 1}"] * width)
        lines.append(f"l{level}: &l{level} " + form.replace("NAMES", names))
    return "\n".join(lines)


@pytest.mark.parametrize("form", ["[NAMES]", "{<<: [NAMES]}", "{a: [NAMES]}"])
def test_aliases_of_aliases_are_refused_at_once(tmp_path: Path, form: str) -> None:
    """Nine lines that stand for a hundred million nodes: one message, without making any of them."""
    began = time.process_time()
    with pytest.raises(LockstepError, match=r"line 1, column 1: not YAML: its aliases stand for"):
        read(tmp_path, bomb(8, 10, form))
    assert time.process_time() - began < 1


def test_an_alias_of_itself_is_refused(tmp_path: Path) -> None:
    """It has no end when it is written out."""
    with pytest.raises(LockstepError, match="an alias stands within what it names"):
        read(tmp_path, "spec: &a {b: [*a]}")


def test_aliases_within_the_bound_are_written_out(tmp_path: Path) -> None:
    """As the cases use them, and up to the bound."""
    (found,) = read(tmp_path, "requests: &r {cpu: 1}\nlimits: *r\nmore: {<<: *r, memory: 2}")
    assert {"requests": {"cpu": 1}, "limits": {"cpu": 1}, "more": {"cpu": 1, "memory": 2}} == found
    one = "a: &a [" + ", ".join(["1"] * 9_999) + "]\nb: [NAMES]"
    fits = one.replace("NAMES", ", ".join(["*a"] * (ALIASED_MAX // 10_000)))
    (found,) = read(tmp_path, fits)
    assert 9_999 * (1 + ALIASED_MAX // 10_000) == json.dumps(found).count("1")
    with pytest.raises(LockstepError, match=f"{ALIASED_MAX + 10_000} nodes, at most {ALIASED_MAX}"):
        read(tmp_path, fits[:-1] + ", *a]")


def test_a_map_of_many_keys_is_read_in_a_moment(tmp_path: Path) -> None:
    """50,000 labels, each compared with all that stood before it, would take minutes."""
    began = time.process_time()
    (found,) = read(tmp_path, "\n".join(f"k{index}: v" for index in range(50_000)))
    assert 50_000 == len(found)
    assert time.process_time() - began < 5
