"""List the texts that people read, or draw some of them for a reader to mark.

    python docs/texts.py errors                  every error: message and hint
    python docs/texts.py keys                    every description of a recipe key
    python docs/texts.py docstrings              every docstring of more than four words
    python docs/texts.py draw --seed 3           100 docstrings, 50 keys and 50 errors

docs/decisions/058-texts-drawn-and-marked.md has the marks of such a draw.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "sciformer"
DRAWN = {"docstrings": 100, "keys": 50, "errors": 50}
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def texts(kind: str) -> list[tuple[str, str]]:
    """Place and text of every docstring, key description or error."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    makers = {maker for tree in trees.values() for maker in message_makers(tree)}
    find = {"docstrings": docstrings, "keys": keys, "errors": lambda tree: errors(tree, makers)}[kind]
    return [
        (f"{path.relative_to(SOURCE)}:{line} {name}".rstrip(), text)
        for path, tree in trees.items()
        for line, name, text in find(tree)
    ]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Docstrings of more than four words."""
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            text = ast.get_docstring(node) or ""
            if len(text.split()) > 4:
                yield getattr(node, "lineno", 1), getattr(node, "name", ""), text


def keys(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Descriptions below the fields of classes."""
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for field, below in zip(owner.body, owner.body[1:]):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                yield (
                    field.lineno,
                    f"{owner.name}.{ast.unparse(field.target)}",
                    " ".join(str(below.value.value).split()),
                )


def message_makers(tree: ast.Module) -> Iterator[str]:
    """Names of the functions that make an error from an argument called `message`."""
    for node in ast.walk(tree):
        arguments = [one.arg for one in node.args.args] if isinstance(node, ast.FunctionDef) else []
        if "message" in arguments and node.name.endswith("error"):
            yield node.name


def errors(tree: ast.Module, makers: Container[str]) -> Iterator[tuple[int, str, str]]:
    """Message and hint of every error; placeholders are shown as {expressions}.

    A message is the first text in a call of an error class or of a function in `makers`. A variable is replaced by the
    text that the function has assigned to it; by several texts, if it was not used between the assignments. Left out
    are assertions, which no user is meant to read, and OSError: its text is a reason in the message of another error.
    """
    known: dict[str, str] = {}
    for node in sorted((node for node in ast.walk(tree) if hasattr(node, "lineno")), key=lambda node: node.lineno):
        if isinstance(node, ast.FunctionDef):
            known = {}
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts))
            for name, one in pairs:
                key, text = ast.unparse(name), shown(one, known)
                known[key] = " | ".join(filter(None, (known.get(key), text)))
        elif isinstance(node, ast.Call) and is_message(ast.unparse(node.func).rpartition(".")[2], makers):
            message, *others = [text for one in node.args if (text := shown(one, known))] or [""]
            hints = [shown(one.value, known) for one in node.keywords if one.arg == "hint"]
            hint = next(iter([*hints, *(text for text in others if " " in text)]), "")
            for used in ast.walk(node):
                if isinstance(used, ast.Name):
                    known.pop(used.id, "")
            if len(message.split()) > 2:
                yield node.lineno, "", message + (f"\n    hint: {hint}" if hint else "")


def is_message(function: str, makers: Container[str]) -> bool:
    """Whether a call of this function has the message of an error as an argument."""
    is_class = function[:1].isupper() and function.endswith("Error")
    return function in makers or (is_class and function not in ("AssertionError", "OSError"))


def shown(node: ast.expr, known: Mapping[str, str]) -> str:
    """Text of a string, of an f-string, of a `known` variable, or of both strings of a choice; else empty."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.JoinedStr):
        return "".join(shown(part, known) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return shown(node.value, known) or f"{{{ast.unparse(node.value)}}}"
    if isinstance(node, ast.BinOp):
        return shown(node.left, known) + shown(node.right, known)
    if isinstance(node, ast.IfExp):
        return " | ".join(filter(None, (shown(node.body, known), shown(node.orelse, known))))
    return ""


def main() -> None:
    """Print the texts asked for."""
    parser = argparse.ArgumentParser(description="Texts that people read.")
    parser.add_argument("what", choices=[*DRAWN, "draw"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    drawn, kinds = random.Random(options.seed), DRAWN if options.what == "draw" else [options.what]
    for kind in kinds:
        found = texts(kind)
        print(f"# {kind} ({len(found)})\n")
        for place, text in sorted(drawn.sample(found, DRAWN[kind])) if options.what == "draw" else found:
            print(f"## {place}\n{text}\n")


if __name__ == "__main__":
    main()
