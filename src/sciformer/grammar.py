"""What a formula may be made of: a whitelist over Python's syntax, of which nothing is ever evaluated."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from .errors import UserError, nearest

LONGEST, DEEPEST, STEEPEST = 10_000, 50, 64  # characters, nesting, exponents
PREFIXES = ("np", "numpy", "ak", "awkward", "math")
CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}
BINARY_NODES = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor)
UNARY_NODES = (ast.USub, ast.UAdd, ast.Invert, ast.Not)
COMPARED_NODES = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
SINGLE = "sqrt exp expm1 log log1p log2 log10 abs sign square floor ceil round isfinite isnan isinf sin cos tan arcsin "
SINGLE += "arccos arctan sinh cosh tanh arcsinh arccosh arctanh ones_like zeros_like logical_not"
DOUBLE = "hypot arctan2 minimum maximum logical_and logical_or power"
FUNCTIONS = {
    **dict.fromkeys(SINGLE.split(), 1),
    **dict.fromkeys(DOUBLE.split(), 2),
    "clip": 3,
    "where": 3,
}
"""Functions of each number, with the number of values they are given."""
OVER = ("sum", "max", "min", "mean", "count", "any", "all", "first")
"""Functions that make one number of a list."""
SAME = {"absolute": "abs", "fabs": "abs", "atan2": "arctan2", "pow": "power", "num": "count", "firsts": "first"}
SAME |= {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}


def parsed(text: str) -> ast.expr:
    """The tree of a formula; it may still hold what is not allowed."""
    if not text:
        raise UserError("the formula is empty")
    if len(text) > LONGEST:
        raise UserError(f"a formula can have {LONGEST:,} characters at most, not {len(text):,}")
    try:
        return ast.parse(text.replace("\n", " "), mode="eval").body
    except SyntaxError as error:
        where = f" at character {error.offset}" if error.offset else ""
        raise UserError(f"the formula {text!r} cannot be read{where}: {error.msg}") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise UserError(f"the formula cannot be read: {error or 'it is nested too deeply'}") from error


def check(tree: ast.expr, text: str) -> Iterator[tuple[str, str]]:
    """The columns of a formula, all of whose parts are allowed, and where they stand in it."""
    todo = [(tree, 0)]
    while todo:
        node, depth = todo.pop()
        if depth > DEEPEST:
            raise UserError(f"a formula can be nested {DEEPEST} deep at most: {text[:60]!r} is deeper")
        name = column_of(node)
        if name is not None:
            yield name, place(node, text)
            continue
        inner = _allowed(node, text)
        chained = isinstance(node, ast.BinOp)  # what stands to the left of a long sum is no deeper
        todo += [(one, depth + (not chained or number > 0)) for number, one in enumerate(inner)][::-1]


def _allowed(node: ast.expr, text: str) -> list[ast.expr]:
    """The parts of a part that is allowed itself."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            if isinstance(value, int) and abs(value) >= 1 << 63:
                raise UserError(f"whole numbers must be below 2**63 ({place(node, text)})")
            return []
        case (
            ast.Name(id="pi")
            | ast.Attribute(value=ast.Name(id="np" | "numpy" | "math"), attr="pi" | "e" | "inf" | "nan")
        ):
            return []
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, BINARY_NODES):
            if isinstance(op, ast.Pow):
                _exponent(right, text)
            return [left, right]
        case ast.UnaryOp(op=op, operand=operand) if isinstance(op, UNARY_NODES):
            return [operand]
        case ast.BoolOp(values=values):
            return values
        case ast.Compare(left=left, ops=ops, comparators=others) if all(isinstance(op, COMPARED_NODES) for op in ops):
            return [left, *others]
        case ast.Subscript(value=value):
            if index_of(node) is None:
                raise UserError(f"an index must be of the form x[:, 0] ({place(node, text)})")
            return [value]
        case ast.Call(func=func, args=given, keywords=words):
            name = function(func)
            if name not in FUNCTIONS and name not in OVER:
                raise UserError(
                    f"{ast.unparse(func)[:40]!r} is not a known function ({place(node, text)})",
                    hint=nearest(name, [*FUNCTIONS, *OVER], 100),
                )
            axes = [word.value for word in words if word.arg == "axis"]
            if len(axes) != len(words) or (words and (name not in OVER or ast.unparse(axes[0]) not in ("1", "-1"))):
                raise UserError(f"{name}(...) cannot have the keyword {words[0].arg}= ({place(node, text)})")
            count = 1 if name in OVER else FUNCTIONS[name]
            if len(given) != count:
                hint = f"Of two columns: {name}imum(a, b)." if name in ("max", "min") else ""
                needed = f"{count} value{'s' * (count > 1)}"
                raise UserError(f"{name}(...) needs {needed}, not {len(given)} ({place(node, text)})", hint=hint)
            if name == "power":
                _exponent(given[1], text)
            return given
    what = {ast.Attribute: "a part of an object", ast.Starred: "*"}.get(type(node), type(node).__name__.lower())
    hint = "Choose by where(condition, a, b)." if isinstance(node, ast.IfExp) else ""
    allowed = "names of columns, numbers, operators and known functions"
    raise UserError(f"a formula can have {allowed}, not {what} ({place(node, text)})", hint=hint)


def _exponent(node: ast.expr, text: str) -> None:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(inner, ast.Constant) and isinstance(inner.value, (int, float)) and abs(inner.value) > STEEPEST:
        raise UserError(f"an exponent can be {STEEPEST} at most, not {inner.value:g} ({place(node, text)})")


def function(node: ast.expr) -> str:
    """The name of a function; nothing for what is none."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in PREFIXES:
        return SAME.get(node.attr, node.attr)
    return SAME.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def column_of(node: ast.AST) -> str | None:
    """The name of a column: a word, or words with dots between them, which are looked up and nothing else."""
    words: list[str] = []
    while isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
        words.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or (words and node.id in PREFIXES) or (node.id == "pi" and not words):
        return None
    return ".".join([node.id, *reversed(words)])


def index_of(node: ast.Subscript) -> int | None:
    """The number i of x[:, i], or None."""
    match node.slice:
        case ast.Tuple(elts=[ast.Slice(lower=None, upper=None, step=None), index]):
            match index:
                case ast.Constant(value=int() as value) if not isinstance(value, bool) and value < 1 << 31:
                    return value
                case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)) if 0 < value < 1 << 31:
                    return -value
    return None


def place(node: ast.AST, text: str) -> str:
    """Where in the formula it stands."""
    return f"at character {getattr(node, 'col_offset', 0) + 1} of {text[:200]!r}"
