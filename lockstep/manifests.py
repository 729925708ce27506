"""Reads manifests: multi-document YAML or JSON files, `-` for standard input; and files of policy fields.

Gives numbered documents; what a document means is decided in `lockstep.simulate_play`. Whatever is wrong with a file
becomes one `LockstepError` that names the file and the place. Called by `lockstep simulate` and `lockstep run`.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from schemas.errors import InvalidMessage, LockstepError
from schemas.policy import policy_change


@dataclass(frozen=True, slots=True)
class Document:
    """One document: `number` counts from 0 over all files, `file` is the name as given."""

    file: str
    number: int
    raw: dict[str, Any]

    @property
    def where(self) -> str:
        """File, number and object, for messages."""
        metadata = self.raw.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        names = [str(metadata[key]) for key in ("namespace", "name") if metadata.get(key)]
        what = f"{self.raw.get('kind', 'no kind')} {'/'.join(names)}".strip()
        return f"{self.file}: document {self.number} ({what})"


#: Nodes that aliases may add to a document. A few lines of aliases of aliases stand for more than any memory holds.
ALIASED_MAX: Final = 100_000


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it: a time stays text, a key that stands twice is an error; aliases are bounded."""

    def construct_document(self, node: Any) -> Any:
        """What a document holds; raises for aliases of themselves, and for too much of them."""
        sizes: dict[int, int | None] = {}
        added = _written_out(node, sizes) - len(sizes)
        if added > ALIASED_MAX:
            problem = f"its aliases stand for {added} nodes, at most {ALIASED_MAX}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_document(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """The map of a node; raises for a key that stands in it twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # no key of an object; the constructor says so
            if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
            seen.add(key.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for letter, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def _written_out(node: Any, sizes: dict[int, int | None]) -> int:
    """Nodes below and with `node` if every alias were written out. `sizes`: by id of a node; None while it is open."""
    known = sizes.get(id(node), 0)
    if known is None:
        problem = "an alias stands within what it names"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    if known:
        return known
    sizes[id(node)] = None
    total = 1
    if isinstance(node, yaml.MappingNode):
        total += sum(_written_out(part, sizes) for pair in node.value for part in pair)
    elif isinstance(node, yaml.SequenceNode):
        total += sum(_written_out(part, sizes) for part in node.value)
    sizes[id(node)] = total
    return total


def read_documents(files: list[str]) -> list[Document]:
    """All documents of the files, in order. Empty documents do not count; a List counts as one."""
    documents: list[Document] = []
    for file in files:
        name = "standard input" if file == "-" else file
        for raw in _parse(name, _text(file)):
            if raw is None:
                continue
            if not isinstance(raw, dict):
                raise LockstepError(
                    f"{name}: document {len(documents)}: a map is wanted, not {type(raw).__name__}"
                )
            documents.append(Document(name, len(documents), raw))
    return documents


def read_policy(file: str) -> dict[str, Any]:
    """The policy fields of a file, in the journal's form: a Policy document, or its spec alone.

    Raises `LockstepError` that names the file and the field.
    """
    documents = read_documents([file])
    if len(documents) != 1:
        raise LockstepError(f"{file}: one policy is wanted, not {len(documents)} documents")
    raw = documents[0].raw
    spec = raw.get("spec") if raw.get("kind") == "Policy" else raw
    if "kind" in raw and (raw["kind"] != "Policy" or not isinstance(spec, dict)):
        raise LockstepError(f"{documents[0].where}: kind Policy with a spec is wanted")
    try:
        return policy_change(dict(spec or {}))
    except InvalidMessage as error:
        raise LockstepError(f"{file}: {error.detail}") from error


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise LockstepError(f"{file}: cannot be read: {reason}") from error


def _parse(name: str, text: str) -> Iterator[Any]:
    if text.lstrip()[:1] == "{":
        try:
            yield from list(_parse_json(text))
            return
        except (ValueError, RecursionError):
            pass  # a flow map of YAML begins like JSON
    try:
        yield from yaml.load_all(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise LockstepError(f"{name}:{place} not YAML: {problem}") from error


def _parse_json(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    position, text = 0, text.strip()
    while position < len(text):
        value, end = decoder.raw_decode(text, position)
        yield value
        position = end + len(text[end:]) - len(text[end:].lstrip())
