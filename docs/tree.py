"""Rewrite the tree of docs/architecture.md from the packages: `make map`. Descriptions are the first lines of their
docstrings."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

PAGE = Path(__file__).parent / "architecture.md"
SOURCE = Path(__file__).parents[1] / "src" / "sciformer"
WIDTH = 100


def tree(folder: Path = SOURCE, depth: int = 1) -> list[str]:
    """The lines of a package: its modules, then its folders."""
    indent, lines = "  " * depth, []
    modules = "  ".join(sorted(path.name for path in folder.glob("*.py") if path.name != "__init__.py"))
    if modules:
        lines += textwrap.wrap(
            modules,
            WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
    for inner in sorted(path for path in folder.iterdir() if (path / "__init__.py").exists()):
        text = ast.get_docstring(ast.parse((inner / "__init__.py").read_text())) or ""
        lines.append(f"{indent}{inner.name + '/':<20}{text.splitlines()[0].rstrip('.') if text else ''}".rstrip())
        lines += tree(inner, depth + 1)
    if (folder / "recipes").is_dir():
        lines.append(f"{indent}{'recipes/':<20}{len(list((folder / 'recipes').rglob('*.yaml')))} recipes")
    return lines


def page(text: str) -> str:
    """The page with the tree of today."""
    start = text.index("src/sciformer/\n") + len("src/sciformer/\n")
    return text[:start] + "\n".join(tree()) + "\n" + text[text.index("benchmarks/", start) :]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
