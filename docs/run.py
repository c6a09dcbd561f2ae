"""Run a guide: every ```python block from top to bottom, in one namespace, and compare what it prints.

    python docs/run.py docs/attention.md [--pictures FOLDER] [--write]

A ```text block that follows a python block is what that block prints, to the letter. Blocks run inside the folder of
pictures (docs/pictures unless given), so that `figure.savefig("name.png")` lands there. `--write` puts what was printed
into the guide. The exit status is 0 when every block ran and printed what the guide says.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n|\Z)(\n*```text\n(.*?)^```(?:\n|\Z))?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Result:
    """What became of one block: where it stands, what it was to print and printed, and how it failed, if it did."""

    line: int
    expected: str
    printed: str
    error: str = ""

    @property
    def problem(self) -> str:
        """The traceback, or the difference between guide and print; empty where all is well."""
        if self.error or self.expected == self.printed:
            return self.error
        before, after = self.expected.splitlines(), self.printed.splitlines()
        return "\n".join(difflib.unified_diff(before, after, "in the guide", "printed", lineterm=""))


def run(path: Path, pictures: Path) -> list[Result]:
    """Run the blocks of the guide at `path`, in the folder `pictures`; the first block that raises is the last."""
    import matplotlib
    import torch

    matplotlib.use("Agg")
    torch.set_num_threads(1)  # sums are added in one order everywhere
    text, space, results = path.read_text(encoding="utf-8"), {"__name__": "guide"}, []
    pictures.mkdir(parents=True, exist_ok=True)
    style = matplotlib.rc_context({"font.size": 8.0, "savefig.dpi": 110, "savefig.bbox": "tight"})
    with contextlib.chdir(pictures), style:
        for match in BLOCK.finditer(text):
            before = text.count("\n", 0, match.start(1))  # lines, so that a traceback names the guide's own
            printed, error = io.StringIO(), ""
            try:
                with contextlib.redirect_stdout(printed):
                    exec(compile("\n" * before + match[1], str(path), "exec"), space)
            except Exception:
                error = traceback.format_exc()
            output = printed.getvalue()
            output += "\n" if output and not output.endswith("\n") else ""  # the fence begins a line of its own
            results.append(Result(before, match[3] or "", output, error))
            if error:
                break
    return results


def write(path: Path, results: list[Result]) -> None:
    """Put what the blocks printed into the guide."""
    printed = iter(result.printed for result in results)

    def filled(match: re.Match[str]) -> str:
        output = next(printed)
        return f"```python\n{match[1]}```\n" + (f"\n```text\n{output}```\n" if output else "")

    path.write_text(BLOCK.sub(filled, path.read_text(encoding="utf-8")), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the guide that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("guide", type=Path)
    parser.add_argument(
        "--pictures", type=Path, help="where pictures go (default: the folder pictures beside the guide)"
    )
    parser.add_argument("--write", action="store_true", help="put what was printed into the guide")
    options = parser.parse_args(arguments)
    guide = options.guide.resolve()
    results = run(guide, options.pictures or guide.parent / "pictures")
    broken = [result for result in results if result.error]
    if options.write and not broken:
        write(guide, results)
        print(f"{options.guide}: {len(results)} blocks ran; wrote what they printed")
        return 0
    for result in results:
        if result.problem:
            print(f"{options.guide}:{result.line}: this block failed\n{result.problem}\n", file=sys.stderr)
    failed = sum(bool(result.problem) for result in results)
    print(f"{options.guide}: {len(results)} blocks ran, {failed} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
