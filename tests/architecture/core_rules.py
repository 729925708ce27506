"""Determinism rules of the core that no linter sees, as searches through syntax trees.

Each `find_*` gives findings for one file. They judge names, not types: a name counts as a set if
anything in `state/` binds or annotates it as one. Called by `test_core.py`.
"""

import ast
from collections.abc import Iterable, Iterator

from tests.architecture.sources import Finding, Source

SET_TYPES = {"set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference"}
SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
# These walk their argument in order, or let the first of equals win.
ORDER_BOUND_CALLS = {
    "list",
    "tuple",
    "iter",
    "next",
    "enumerate",
    "map",
    "filter",
    "zip",
    "reversed",
}
ORDER_BOUND_CALLS |= {"dict", "array", "fromiter", "asarray", "join", "extend", "deque"}
IDENTITY_CALLS = {"hash", "id"}
OUTSIDE_CALLS = {"open", "input", "print", "eval", "exec", "compile", "globals", "locals", "vars"}
FLOAT_NAMES = {"float", "float16", "float32", "float64", "float128", "double", "inf", "nan"}
FLOAT_CALLS = {"mean", "average", "true_divide", "divide", "sqrt", "linspace", "std", "var"}
FLOAT_CALLS |= {"median", "percentile", "quantile", "log", "exp", "dot", "matmul", "einsum"}


def find_set_walks(source: Source, set_names: frozenset[str]) -> list[Finding]:
    """Walks over a set, in a loop, a comprehension, a star or a call, and `pop` from one."""
    found = []
    for node in ast.walk(source.tree):
        for walked in _walked(node):
            if _is_set(walked, set_names):
                message = f"walks a set, whose order is an accident: {ast.unparse(walked)}; sort it"
                found.append(source.finding(walked.lineno, message))
    return found


def find_identity(source: Source) -> list[Finding]:
    """Builtin `hash` and `id`, which differ between processes, and `popitem`."""
    found = []
    for call in _calls(source):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name in IDENTITY_CALLS:
            found.append(source.finding(call.lineno, f"{name}() differs between processes"))
        if isinstance(call.func, ast.Attribute) and call.func.attr == "popitem":
            found.append(source.finding(call.lineno, "popitem() leaves the choice to the dict"))
    return found


def find_outside_calls(source: Source) -> list[Finding]:
    """Builtins that reach outside of State and Record."""
    return [
        source.finding(call.lineno, f"{call.func.id}() reaches outside of State and Record")
        for call in _calls(source)
        if isinstance(call.func, ast.Name) and call.func.id in OUTSIDE_CALLS
    ]


def find_floats(source: Source) -> list[Finding]:
    """True division, float literals, float types, and calls that give floats."""
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            found.append(
                source.finding(node.lineno, "true division gives a float: use a named rounding")
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, float | complex):
            found.append(source.finding(node.lineno, f"float literal {node.value}"))
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            found.append(source.finding(node.lineno, "a matrix product has no stated order"))
        elif isinstance(node, ast.Name | ast.Attribute) and _name(node) in FLOAT_NAMES:
            found.append(source.finding(node.lineno, f"float by name: {ast.unparse(node)}"))
        elif isinstance(node, ast.Call) and _name(node.func) in FLOAT_CALLS:
            found.append(source.finding(node.lineno, f"{_name(node.func)}() gives a float"))
    return found


def set_names(sources: Iterable[Source]) -> frozenset[str]:
    """Names of variables, attributes and functions that hold or give a set anywhere in `sources`."""
    names: set[str] = set()
    grew = True
    while grew:  # `a = set()` makes `b = a | c` a set too
        known = frozenset(names)
        for source in sources:
            for node in ast.walk(source.tree):
                names.update(_bound_as_set(node, known))
        grew = len(names) > len(known)
    return frozenset(names)


def _bound_as_set(node: ast.AST, known: frozenset[str]) -> Iterator[str]:
    match node:
        case ast.arg(arg=name, annotation=ast.expr() as annotation) if _is_set_type(annotation):
            yield name
        case ast.AnnAssign(target=target, annotation=annotation) if _is_set_type(annotation):
            yield _name(target)
        case ast.FunctionDef(name=name, returns=ast.expr() as annotation) if _is_set_type(
            annotation
        ):
            yield name
        case ast.Assign(targets=targets, value=value) if _is_set(value, known):
            yield from (name for target in targets if (name := _name(target)))


def _walked(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that this node walks in order."""
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield node.iter
    elif isinstance(node, ast.Starred | ast.YieldFrom):
        yield node.value
    elif isinstance(node, ast.Call):
        called = _name(node.func)
        keyed = called in ("min", "max") and any(each.arg == "key" for each in node.keywords)
        if called in ORDER_BOUND_CALLS or keyed:
            yield from node.args
        if called == "pop" and isinstance(node.func, ast.Attribute) and not node.args:
            yield node.func.value


def _is_set(node: ast.expr, known: frozenset[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Name | ast.Attribute):
        return _name(node) in known
    if isinstance(node, ast.BinOp) and isinstance(node.op, SET_OPERATORS):
        return any(_is_set(side, known) or _is_keys(side) for side in (node.left, node.right))
    if isinstance(node, ast.BoolOp):
        return any(_is_set(value, known) for value in node.values)
    if isinstance(node, ast.IfExp):
        return _is_set(node.body, known) or _is_set(node.orelse, known)
    if isinstance(node, ast.Call):
        called = _name(node.func)
        if called == "copy" and isinstance(node.func, ast.Attribute):
            return _is_set(node.func.value, known)
        return called in SET_METHODS | {"set", "frozenset"} or called in known
    return False


def _is_keys(node: ast.expr) -> bool:
    """`a.keys() & b.keys()` is a set, unlike `a.keys()` itself."""
    return isinstance(node, ast.Call) and _name(node.func) in ("keys", "items")


def _is_set_type(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Subscript):
        return _is_set_type(annotation.value)
    if isinstance(annotation, ast.BinOp):
        return _is_set_type(annotation.left) or _is_set_type(annotation.right)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _is_set_type(ast.parse(annotation.value, mode="eval").body)
    return _name(annotation) in SET_TYPES


def _name(node: ast.AST) -> str:
    """The last word of a dotted name; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _calls(source: Source) -> Iterator[ast.Call]:
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
