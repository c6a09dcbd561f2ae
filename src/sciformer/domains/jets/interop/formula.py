"""Formulas of weaver in the words of `sciformer.data.readers.formula`: read as a tree, never evaluated.

translated("np.log(part_pt/jet_pt)")          log(part_pt / jet_pt)
translated("ak.sum(part_pt, axis=1) > 5")     sum(part_pt) > 5
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, cast

from ....data.readers.formula import CONSTANTS, LIST_FUNCTIONS, Formula
from ....errors import UserError

MODULE_NAMES = ("np", "numpy", "ak", "awkward", "math")
MAX_CHARACTERS = 10_000  # characters of a formula, as it is written or with others put into it
RENAMED_FUNCTIONS = {
    "_clip": "clip",
    "fmin": "minimum",
    "fmax": "maximum",
    "num": "count",
    "firsts": "first",
    "absolute": "abs",
}
IDENTITY_FUNCTIONS = ("to_numpy", "asarray", "values_astype", "to_packed")  # what they are given
BINARY_OPERATORS: dict[str, Any] = {
    "add": ast.Add,
    "subtract": ast.Sub,
    "multiply": ast.Mult,
    "divide": ast.Div,
    "true_divide": ast.Div,
}
COMPARISON_OPERATORS: dict[str, Any] = {
    "greater": ast.Gt,
    "greater_equal": ast.GtE,
    "less": ast.Lt,
    "less_equal": ast.LtE,
    "equal": ast.Eq,
    "not_equal": ast.NotEq,
}


def translate_formula(text: Any) -> str:
    """The same formula in our words; what has none is refused, by its name."""
    made = _unparse(_parse(text))
    Formula(made)
    return made


def column_names(text: Any) -> list[str]:
    """The columns that a formula of weaver is made of, in the order in which they come."""
    return list(dict.fromkeys(node.id for node in _walk(_parse(text)) if isinstance(node, ast.Name)))


def expand_formula(text: Any, new: Mapping[str, Any]) -> str:
    """The formula with the variables of `new` put in, down to the columns of the files: equal ones are equal texts."""
    return _unparse(_ExpandNames(new, ()).visit(_parse(text)))


def _unparse(tree: ast.expr) -> str:
    try:
        return ast.unparse(tree)
    except RecursionError as error:
        raise UserError("the formula is nested too deeply") from error


def _parse(text: Any) -> ast.expr:
    if not isinstance(text, (str, int, float)) or len(str(text)) > MAX_CHARACTERS:
        raise UserError(f"a formula must be a text of at most {MAX_CHARACTERS:,} characters, not {str(text)[:60]!r}")
    try:
        tree = ast.parse(str(text).strip(), mode="eval")
        return cast(ast.expr, ast.fix_missing_locations(_SimplifyCalls().visit(tree.body)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"the formula {str(text)[:60]!r} cannot be read") from error


def _walk(tree: ast.expr) -> list[ast.AST]:
    """The parts of a tree from left to right, without the names of functions."""
    found: list[ast.AST] = [tree]
    for child in ast.iter_child_nodes(tree):
        called = isinstance(tree, ast.Call) and child is tree.func
        if not called and isinstance(child, ast.expr):
            found += _walk(child)
    return found


class _SimplifyCalls(ast.NodeTransformer):
    """Without the names of modules, and with operators for functions that are one."""

    def visit_Call(self, node: ast.Call) -> Any:
        name = _function_name(node.func)
        given = [self.visit(value) for value in node.args]
        keywords = {word.arg: word.value for word in node.keywords}
        if name in IDENTITY_FUNCTIONS:
            return given[0]
        name = RENAMED_FUNCTIONS.get(name, name)
        if name in LIST_FUNCTIONS:
            return ast.Call(ast.Name(name), [self._one_axis(name, given, keywords)], [])
        if keywords:
            raise UserError(f"`{name}` must have no keywords, not {next(iter(keywords))}=")
        if name in BINARY_OPERATORS and len(given) == 2:
            return ast.BinOp(given[0], BINARY_OPERATORS[name](), given[1])
        if name in COMPARISON_OPERATORS and len(given) == 2:
            return ast.Compare(given[0], [COMPARISON_OPERATORS[name]()], [given[1]])
        return ast.Call(ast.Name(name), given, [])

    def _one_axis(self, name: str, given: list[ast.expr], keywords: Mapping[str | None, ast.expr]) -> ast.expr:
        """What is summed over the particles of each jet; a sum over all jets has no equal."""
        other = set(keywords) - {"axis"}
        axis = given[1] if len(given) > 1 else keywords.get("axis")
        if axis is None and name in ("count", "first") and len(given) == 1 and not other:  # along axis 1 unless told
            return given[0]
        known = isinstance(axis, (ast.Constant, ast.UnaryOp)) and ast.unparse(axis) in ("1", "-1")
        if other or not known or len(given) > 2:
            raise UserError(f"`{name}` must go over the particles of a jet (axis=1)")
        return given[0]

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in MODULE_NAMES and node.attr in CONSTANTS:
            return ast.Constant(CONSTANTS[node.attr])  # of NumPy or math
        raise UserError(f"`{ast.unparse(node)}` is not the name of a column or of a known function")


def _function_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in MODULE_NAMES:
        return node.attr
    raise UserError(f"`{ast.unparse(node)[:60]}` is not a function of NumPy or awkward")


class _ExpandNames(ast.NodeTransformer):
    """With formulas in the place of the names they belong to."""

    def __init__(self, new: Mapping[str, Any], inside: tuple[str, ...], size: list[int] | None = None) -> None:
        self.new, self.inside, self.size = new, inside, size or [0]

    def visit_Call(self, node: ast.Call) -> Any:
        node.args = [self.visit(value) for value in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id not in self.new or node.id in self.inside or self.new[node.id] == node.id:
            return node
        self.size[0] += len(str(self.new[node.id]))
        if self.size[0] > MAX_CHARACTERS:
            raise UserError(f"the formula is longer than {MAX_CHARACTERS:,} characters with others put into it")
        return _ExpandNames(self.new, (*self.inside, node.id), self.size).visit(_parse(self.new[node.id]))
