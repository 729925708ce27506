"""How the project is cut into files, functions and names, as searches through syntax trees.

Called by `test_shape.py`.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from tests.architecture.sources import Finding, Source

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 5  # keyword-only ones not counted
DUMPING_GROUNDS = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "misc"}
EMPTY_WORDS = {"Manager", "Helper", "Handler", "Info", "Data", "Base", "Utils", "Util", "Common"}
GIVEN_SIGNATURES = {
    ("streams/embedded/transport.py", "send"),  # Faust's producer
}
REMINDER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(\(#\d+\))?")


def find_long_modules(source: Source) -> list[Finding]:
    count = source.text.count("\n")
    if count <= MODULE_LINES_MAX:
        return []
    return [source.finding(1, f"{count} lines, more than {MODULE_LINES_MAX}: split it by noun")]


def find_long_functions(source: Source) -> list[Finding]:
    """Functions over the guide, without their docstring, and functions of many parameters."""
    found = []
    for function in _functions(source.tree):
        count = (function.end_lineno or 0) - function.lineno + 1 - _docstring_lines(function)
        if count > FUNCTION_LINES_MAX:
            message = f"{function.name}: {count} lines, more than {FUNCTION_LINES_MAX}"
            found.append(source.finding(function.lineno, message))
        names = [each.arg for each in function.args.posonlyargs + function.args.args]
        count = len([name for name in names if name not in ("self", "cls")])
        if count > PARAMETERS_MAX and not _called_by_others(source, function.name):
            message = f"{function.name}: {count} positional parameters, more than {PARAMETERS_MAX}"
            found.append(source.finding(function.lineno, message))
    return found


def _called_by_others(source: Source, function: str) -> bool:
    """pytest passes a test's arguments by name; a library fixes the signature of its ports."""
    return function.startswith("test_") or (source.path, function) in GIVEN_SIGNATURES


def find_dumping_grounds(source: Source) -> list[Finding]:
    """Modules, folders and classes whose name says nothing about what is in them."""
    found = []
    for part in source.module.split("."):
        if DUMPING_GROUNDS & set(part.split("_")):
            found.append(source.finding(1, f"{part}: name it by the noun that it is about"))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            empty = EMPTY_WORDS & set(re.findall(r"[A-Z][a-z0-9]*", node.name))
            if empty:
                message = f"class {node.name}: {min(empty)} says nothing; name the noun"
                found.append(source.finding(node.lineno, message))
    return found


def find_undocumented(source: Source) -> list[Finding]:
    """Modules without a docstring."""
    empty = source.text.strip() == ""
    return [] if empty or ast.get_docstring(source.tree) else [source.finding(1, "no docstring")]


def find_silent_tests(source: Source) -> list[Finding]:
    """Test functions without a sentence that says what is expected."""
    return [
        source.finding(function.lineno, f"{function.name} has no docstring")
        for function in _functions(source.tree)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]


def find_reminders(source: Source) -> list[Finding]:
    """Reminders in comments: TODO needs an issue's number, `TODO(#12)`; the others may not stay."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT:
            continue
        for word, issue in REMINDER.findall(token.string):
            if word != "TODO" or not issue:
                found.append(source.finding(token.start[0], f"{word} without an issue's number"))
    return found


def find_namesakes(sources: Iterable[Source]) -> list[Finding]:
    """Public classes of one name in two packages: two meanings for one word."""
    homes: dict[str, Source] = {}  # class name -> the first file that has it
    found = []
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                first = homes.setdefault(node.name, source)
                packages = {first.path.split("/")[0], source.path.split("/")[0]}
                if len(packages) > 1:
                    message = f"class {node.name} stands in {first.path} too"
                    found.append(source.finding(node.lineno, message))
    return found


def find_orphans(sources: Iterable[Source], roots: Iterable[str]) -> list[Finding]:
    """Modules that nothing imports and that are no root (an entry point, or run with `-m`)."""
    sources = list(sources)
    used = set(roots)
    for source in sources:
        used.update(name for name in _mentioned(source) if name != source.module)
    return [
        source.finding(1, "no module imports it")
        for source in sources
        if source.module not in used and not _is_entry(source)
    ]


def _is_entry(source: Source) -> bool:
    return source.path.endswith(("/__init__.py", "/__main__.py"))


def _mentioned(source: Source) -> Iterator[str]:
    """Dotted names that this file imports, or names in a string for a lazy import."""
    package = (
        source.module if source.path.endswith("__init__.py") else source.module.rpartition(".")[0]
    )
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*parts, *([node.module] if node.module else [])])
            base = base if node.level else node.module or ""
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if not ast.get_docstring(function):
        return 0
    return (function.body[0].end_lineno or 0) - function.body[0].lineno + 1
