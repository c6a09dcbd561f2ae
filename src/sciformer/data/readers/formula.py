"""Formulas over the columns of a table, such as `hypot(px, py) > 0.5`.

A formula is parsed into a syntax tree, which is computed with the operations listed here; nothing is evaluated as
Python. A column has a number or a list of numbers (`Lists`) for each sample. If an operation combines a number with a
list, the number is repeated for every entry of the list.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import numpy as np

from ...errors import UserError, nearest
from ..columns import Array, Lists, Table, rows_of

Value = float | Array | Lists
Operation = Callable[..., Any]


def _bits(operation: Operation, sign: str) -> Operation:
    def apply(a: Any, b: Any) -> Any:
        if np.result_type(a, b).kind not in "biu":
            message = f"both sides of `{sign}` must be conditions or integers, not real numbers"
            raise UserError(message, hint="Write comparisons, such as x > 0.")
        return operation(a, b)

    return apply


def _inverse(a: Any) -> Any:
    if np.result_type(a).kind != "b":
        raise UserError("`~` needs a condition, not numbers", hint="Write a comparison, such as ~(x > 0).")
    return np.logical_not(a)


def _power(a: Any, b: Any) -> Any:
    return np.power(a if np.result_type(a).kind == "f" else np.asarray(a, np.float64), b)


BINARY_OPERATIONS: dict[type[ast.AST], Operation] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.Pow: _power,
}
LOGICAL_OPERATIONS: dict[type[ast.AST], Operation] = {
    ast.BitAnd: _bits(np.bitwise_and, "&"),
    ast.BitOr: _bits(np.bitwise_or, "|"),
    ast.BitXor: _bits(np.bitwise_xor, "^"),
}
UNARY_OPERATIONS: dict[type[ast.AST], Operation] = {
    ast.USub: np.negative,
    ast.UAdd: np.positive,
    ast.Invert: _inverse,
    ast.Not: np.logical_not,
}
COMPARISONS: dict[type[ast.AST], Operation] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
REDUCTIONS: dict[str, np.ufunc] = {
    "any": np.logical_or,
    "all": np.logical_and,
    "max": np.maximum,
    "min": np.minimum,
    "sum": np.add,
    "mean": np.add,
}
OWN_FUNCTIONS: dict[str, Operation] = {"power": _power}
UNCONVERTED_FUNCTIONS = ("where", "ones_like", "zeros_like")  # functions that keep the dtype


class Formula:
    """A checked formula: `names` are its columns, `of(table)` computes it.

    Operators: + - * / // % ** < <= > >= == != & | ^ ~ and or not. Functions: all in `FUNCTIONS`, and sum, max, min,
    mean, count, any, all and first over the list of a sample. x[:, 2] is the third entry of each list, NaN if the list
    is shorter. The max, min and mean of an empty list are NaN. The prefixes `np.`, `ak.` and `math.` are ignored.
    """

    def __init__(self, text: str) -> None:
        self.text = str(text).strip()
        self.tree = parsed(self.text)
        self.places: dict[str, str] = {}
        for name, where in check(self.tree, self.text):
            self.places.setdefault(name, where)
        self.names = tuple(self.places)
        """Columns of the formula, in order of appearance."""

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"

    def of(self, table: Table) -> Array | Lists:
        """Evaluate the formula on the columns of a table."""
        for name in self.names:
            if name not in table:
                message = f"the data have no column {name!r} ({self.places[name]})"
                raise UserError(message, hint=nearest(name, table))
        with np.errstate(all="ignore"):
            found = self._value(self.tree, table)
        return found if isinstance(found, (Lists, np.ndarray)) else np.full(rows_of(table), found)

    def _value(self, node: ast.expr, table: Table) -> Value:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return number
            case ast.BinOp():
                return self._chain(node, table)
            case ast.UnaryOp(op=sign, operand=operand):
                reckoned = isinstance(sign, (ast.USub, ast.UAdd))
                return self._apply(UNARY_OPERATIONS[type(sign)], [self._value(operand, table)], node, reckoned)
            case ast.BoolOp(op=word, values=parts):
                both = np.logical_and if isinstance(word, ast.And) else np.logical_or
                return self._joined(both, [self._value(part, table) for part in parts], node)
            case ast.Compare(left=left, ops=signs, comparators=others):
                sides = [self._value(side, table) for side in (left, *others)]
                pairs = zip(signs, sides, sides[1:])
                made = [self._apply(COMPARISONS[type(sign)], [a, b], node) for sign, a, b in pairs]
                return self._joined(np.logical_and, made, node)
            case ast.Call(func=func, args=given):
                name, inputs = function(func), [self._value(one, table) for one in given]
                if name in LIST_FUNCTIONS:
                    return self._reduce_lists(name, inputs[0], node)
                operation = OWN_FUNCTIONS.get(name) or getattr(np, name)
                return self._apply(operation, inputs, node, name not in UNCONVERTED_FUNCTIONS)
            case ast.Subscript(value=inner):
                return self._entry(self._value(inner, table), index_of(node) or 0, node)
        column = column_of(node)
        if column is None:
            assert isinstance(node, (ast.Name, ast.Attribute))
            return CONSTANTS[node.id if isinstance(node, ast.Name) else node.attr]
        return self._column(column, table)

    def _column(self, name: str, table: Table) -> Array | Lists:
        found = table[name]
        values = found.values if isinstance(found, Lists) else np.asarray(found)
        if values.dtype.kind not in "biuf":
            raise UserError(f"the formula {self.text!r} needs numbers in the column `{name}`, not {values.dtype}")
        return found if isinstance(found, Lists) else values

    def _joined(self, operation: Operation, values: list[Value], node: ast.expr) -> Value:
        return reduce(lambda one, other: self._apply(operation, [one, other], node), values)

    def _chain(self, node: ast.BinOp, table: Table) -> Value:
        """Compute a + b + c + ... from the left, without recursion."""
        links: list[ast.BinOp] = []
        inner: ast.expr = node
        while isinstance(inner, ast.BinOp):
            links.append(inner)
            inner = inner.left
        found = self._value(inner, table)
        for link in reversed(links):
            sign, right = type(link.op), self._value(link.right, table)
            operation = (BINARY_OPERATIONS | LOGICAL_OPERATIONS)[sign]
            found = self._apply(operation, [found, right], link, numbers=sign in BINARY_OPERATIONS)
        return found

    def _apply(self, operation: Operation, values: list[Value], node: ast.expr, numbers: bool = False) -> Value:
        """Apply an operation elementwise; broadcast numbers over lists of the same sample."""
        lengths = next((value.lengths for value in values if isinstance(value, Lists)), None)
        plain: list[Any] = values
        if lengths is not None:
            plain = [self._along(value, lengths, node) for value in values]
        elif any(np.ndim(value) > 1 for value in plain):
            plain = [value[:, None] if np.ndim(value) == 1 else value for value in plain]
        scalar = not any(isinstance(value, np.ndarray) for value in plain)
        if numbers:
            plain = [_number(value, scalar) for value in plain]
        try:
            found = operation(*plain)
        except UserError as error:
            raise error.with_fields(message=f"{error.message} ({place(node, self.text)})") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise error_at(f"the values cannot be combined: {error}", node, self.text) from error
        if scalar:
            return np.asarray(found).item()
        return found if lengths is None else Lists(found, lengths)

    def _along(self, value: Value, lengths: Array, node: ast.expr) -> Any:
        if isinstance(value, Lists):
            if value.lengths is not lengths and not np.array_equal(value.lengths, lengths):
                raise error_at("the lists have different lengths in some samples", node, self.text)
            return value.values
        if isinstance(value, np.ndarray):
            if value.ndim > 1:
                message = f"lists can be combined with one number per sample, not an array of shape {value.shape[1:]}"
                raise error_at(message, node, self.text)
            return np.repeat(value, lengths)
        return value

    def _reduce_lists(self, name: str, value: Value, node: ast.expr) -> Array:
        if isinstance(value, np.ndarray) and value.ndim == 2:
            value = Lists(value.reshape(-1), np.full(len(value), value.shape[1], np.int64))
        if not isinstance(value, Lists):
            raise error_at(f"{name}(...) needs a list for each sample, not a single number", node, self.text)
        if name == "first":
            return self._entry(value, 0, node)
        lengths = value.lengths
        if name == "count":
            return lengths.astype(np.int64)
        filled = lengths > 0
        starts = (lengths.cumsum() - lengths)[filled]
        values = value.values != 0 if name in ("any", "all") else _number(value.values)
        if name == "mean" or (name == "sum" and values.dtype.kind != "i"):
            values = values.astype(np.float64)
        made = REDUCTIONS[name].reduceat(values, starts) if len(starts) else values[:0]
        if name in ("max", "min"):
            return _spread(made, filled)
        found = np.full(len(value), name == "all", values.dtype)
        found[filled] = made
        return found / np.where(filled, lengths, np.nan) if name == "mean" else found

    def _entry(self, value: Value, index: int, node: ast.expr) -> Array:
        """Entry of each list at an index; a negative index counts from the end."""
        if isinstance(value, np.ndarray) and value.ndim == 2:
            if not -value.shape[1] <= index < value.shape[1]:
                raise error_at(f"the index must be below {value.shape[1]}, not {index}", node, self.text)
            return value[:, index]
        if not isinstance(value, Lists):
            raise error_at("an index needs a list for each sample, not a single number", node, self.text)
        lengths = value.lengths
        there = lengths > index if index >= 0 else lengths >= -index
        stops = lengths.cumsum()
        places = stops - lengths + index if index >= 0 else stops + index
        return _spread(value.values[places[there]], there)


def _spread(made: Array, there: Array) -> Array:
    """Place numbers where the mask `there` is True; NaN elsewhere."""
    if there.all():
        return made
    found = np.full(len(there), np.nan, np.result_type(made, np.float32))
    found[there] = made
    return found


def _number(value: Any, scalar: bool = False) -> Any:
    """Convert numbers for arithmetic: integers to int64, half precision to float32."""
    if not isinstance(value, np.ndarray):
        return float(value) if scalar else value
    if value.dtype.kind == "f":
        return value if value.dtype.itemsize > 2 else value.astype(np.float32)
    return value.astype(np.float64 if value.dtype == np.uint64 else np.int64, copy=False)


# Grammar: a whitelist of Python syntax; nothing is evaluated


MAX_CHARACTERS, MAX_DEPTH, MAX_EXPONENT = 10_000, 50, 64
PREFIXES = ("np", "numpy", "ak", "awkward", "math")
CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}
FUNCTIONS_OF_ONE = (
    "sqrt exp expm1 log log1p log2 log10 abs sign square floor ceil round isfinite isnan isinf sin cos tan arcsin "
)
FUNCTIONS_OF_ONE += "arccos arctan sinh cosh tanh arcsinh arccosh arctanh ones_like zeros_like logical_not"
FUNCTIONS_OF_TWO = "hypot arctan2 minimum maximum logical_and logical_or power"
FUNCTIONS = dict.fromkeys(FUNCTIONS_OF_ONE.split(), 1) | dict.fromkeys(FUNCTIONS_OF_TWO.split(), 2)
FUNCTIONS |= {"clip": 3, "where": 3}
"""Elementwise functions, with their number of arguments."""
LIST_FUNCTIONS = ("sum", "max", "min", "mean", "count", "any", "all", "first")
"""Functions that reduce a list to one number."""
FUNCTION_ALIASES = {"absolute": "abs", "fabs": "abs", "pow": "power", "num": "count", "firsts": "first"}
FUNCTION_ALIASES |= {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")}


def parsed(text: str) -> ast.expr:
    """Parse a formula to a syntax tree; `check` then checks the tree."""
    if not text:
        raise UserError("the formula is empty")
    if len(text) > MAX_CHARACTERS:
        raise UserError(f"a formula can have at most {MAX_CHARACTERS:,} characters, not {len(text):,}")
    try:
        return ast.parse(text.replace("\n", " "), mode="eval").body
    except SyntaxError as error:
        where = f" at character {error.offset}" if error.offset else ""
        raise UserError(f"the formula {text!r} has a syntax error{where}: {error.msg}") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise UserError(f"the formula cannot be parsed: {error or 'it is nested too deeply'}") from error


def check(tree: ast.expr, text: str) -> Iterator[tuple[str, str]]:
    """Check the syntax tree of a formula; yield column names and positions."""
    todo = [(tree, 0)]
    while todo:
        node, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise UserError(f"a formula can have at most {MAX_DEPTH} levels of nesting: {text[:60]!r} has more")
        name = column_of(node)
        if name is not None:
            yield name, place(node, text)
            continue
        inner = _check_node(node, text)
        chained = isinstance(node, ast.BinOp)  # the left side of a long sum adds no depth
        todo += [(one, depth + (not chained or number > 0)) for number, one in enumerate(inner)][::-1]


def _check_node(node: ast.expr, text: str) -> list[ast.expr]:
    """Check one node of the tree; return its child nodes."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            if isinstance(value, int) and abs(value) >= 1 << 63:
                raise error_at("integers must be less than 2**63", node, text)
            return []
        case (
            ast.Name(id="pi")
            | ast.Attribute(value=ast.Name(id="np" | "numpy" | "math"), attr="pi" | "e" | "inf" | "nan")
        ):
            return []
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY_OPERATIONS | LOGICAL_OPERATIONS:
            if isinstance(op, ast.Pow):
                _exponent(right, text)
            return [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY_OPERATIONS:
            return [operand]
        case ast.BoolOp(values=values):
            return values
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in COMPARISONS for op in ops):
            return [left, *others]
        case ast.Subscript(value=value):
            if index_of(node) is None:
                raise error_at("an index must be of the form x[:, 0]", node, text)
            return [value]
        case ast.Call(func=func, args=given, keywords=words):
            name = function(func)
            if name not in FUNCTIONS and name not in LIST_FUNCTIONS:
                hint = nearest(name, [*FUNCTIONS, *LIST_FUNCTIONS], 100)
                raise error_at(f"{ast.unparse(func)[:40]!r} is not a known function", node, text, hint)
            for word in words:
                if word.arg != "axis" or name not in LIST_FUNCTIONS or ast.unparse(word.value) not in ("1", "-1"):
                    raise error_at(f"{name}(...) cannot have the keyword {word.arg}=", node, text)
            count = 1 if name in LIST_FUNCTIONS else FUNCTIONS[name]
            if len(given) != count:
                hint = f"For two columns use {name}imum(a, b)." if name in ("max", "min") else ""
                needed = f"{count} value{'s' * (count > 1)}"
                raise error_at(f"{name}(...) needs {needed}, not {len(given)}", node, text, hint)
            if name == "power":
                _exponent(given[1], text)
            return given
    what = {ast.Attribute: "an attribute", ast.Starred: "*"}.get(type(node), type(node).__name__.lower())
    hint = "Use where(condition, a, b)." if isinstance(node, ast.IfExp) else ""
    allowed = "column names, numbers, operators and known functions"
    raise error_at(f"a formula can have only {allowed}, not {what}", node, text, hint)


def _exponent(node: ast.expr, text: str) -> None:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(inner, ast.Constant) and isinstance(inner.value, (int, float)) and abs(inner.value) > MAX_EXPONENT:
        raise error_at(f"an exponent can be at most {MAX_EXPONENT}, not {inner.value:g}", node, text)


def function(node: ast.expr) -> str:
    """Name of a function, from its node (`sum`, `np.sum`); empty for other nodes."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in PREFIXES:
        return FUNCTION_ALIASES.get(node.attr, node.attr)
    return FUNCTION_ALIASES.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def column_of(node: ast.AST) -> str | None:
    """Column name of a node, `name` or `outer.inner`; None for other nodes."""
    words: list[str] = []
    while isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
        words.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or (words and node.id in PREFIXES) or (node.id == "pi" and not words):
        return None
    return ".".join([node.id, *reversed(words)])


def index_of(node: ast.Subscript) -> int | None:
    """Index i if the node is a subscript x[:, i]; else None."""
    match node.slice:
        case ast.Tuple(elts=[ast.Slice(lower=None, upper=None, step=None), index]):
            match index:
                case ast.Constant(value=int() as value) if not isinstance(value, bool) and value < 1 << 31:
                    return value
                case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)) if 0 < value < 1 << 31:
                    return -value
    return None


def place(node: ast.AST, text: str) -> str:
    """Position of a node in the formula, in words."""
    return f"at character {getattr(node, 'col_offset', 0) + 1} of {text[:200]!r}"


def error_at(message: str, node: ast.AST, text: str, hint: str = "") -> UserError:
    """A `UserError` with the position of the node in the formula."""
    return UserError(f"{message} ({place(node, text)})", hint=hint)
