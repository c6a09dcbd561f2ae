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
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "sciformer"
DRAWN = {"docstrings": 100, "keys": 50, "errors": 50}
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def texts(kind: str) -> list[tuple[str, str]]:
    """Place and text of every docstring, key description or error."""
    find = {"docstrings": docstrings, "keys": keys, "errors": errors}[kind]
    return [
        (f"{path.relative_to(SOURCE)}:{line} {name}".rstrip(), text)
        for path in sorted(SOURCE.rglob("*.py"))
        for line, name, text in find(ast.parse(path.read_text("utf-8")))
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


def errors(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Message and hint of every error; placeholders are shown as {expressions}.

    A message is the first text in a call of UserError or of a function named `...error`, or a variable `message`.
    """
    for node in ast.walk(tree):
        message = hint = ""
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).split(",")[0].strip("(") == "message":
            texts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            message, *others = map(shown, texts)
            hint = " ".join(others)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].lower().endswith("error"):
            message = next((shown(one) for one in node.args if shown(one)), "")
            hint = next((shown(one.value) for one in node.keywords if one.arg == "hint"), "")
        if len(message.split()) > 2:
            yield node.lineno, "", message + (f"\n    hint: {hint}" if hint else "")


def shown(node: ast.expr) -> str:
    """Text of a string, f-string, or choice between two strings; empty for other expressions."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
    if isinstance(node, ast.BinOp):
        return shown(node.left) + shown(node.right)
    return " | ".join(filter(None, (shown(node.body), shown(node.orelse)))) if isinstance(node, ast.IfExp) else ""


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
