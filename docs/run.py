"""Run a guide: every block from top to bottom, and compare what it prints.

    python docs/run.py docs/attention.md [--pictures FOLDER] [--write]

```python         runs, all in one namespace
```sh             its lines that begin with `sciformer ` run, by the function behind the installed command
```LANGUAGE FILE  is written to that file
```text           after one of these is what it prints, to the letter; output in a fence without a name is not compared

Blocks run inside the folder of pictures (docs/pictures unless given), so that `figure.savefig("name.png")` lands there;
a guide without pictures runs in a folder that is gone afterwards. `--write` puts what was printed into the guide. The
exit status is 0 when every block ran and printed what the guide says.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"^```(?P<head>python|sh|\w+ [\w./-]+)\n(?P<body>.*?)^```(?:\n|\Z)(\n*```text\n(?P<text>.*?)^```(?:\n|\Z))?",
    re.MULTILINE | re.DOTALL,
)
Words = list[str]


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


def run(path: Path, pictures: Path, adjust: Callable[[Words], Words] = list) -> list[Result]:
    """Run the blocks of the guide at `path`, in the folder `pictures`; the first block that fails is the last.

    adjust   may change the words of a command, so that a test can run a long training with a small setting
    """
    import matplotlib
    import torch

    matplotlib.use("Agg")
    torch.set_num_threads(1)  # sums are added in one order everywhere
    text, space, results = path.read_text(encoding="utf-8"), {"__name__": "guide"}, []
    pictures.mkdir(parents=True, exist_ok=True)
    style = matplotlib.rc_context({"font.size": 8.0, "savefig.dpi": 110, "savefig.bbox": "tight"})
    with contextlib.chdir(pictures), style:
        for match in BLOCK.finditer(text):
            before = text.count("\n", 0, match.start("body"))  # lines, so that a traceback names the guide's own
            printed, error = io.StringIO(), ""
            try:
                with contextlib.redirect_stdout(printed):
                    _run_block(match["head"], match["body"], str(path), before, space, adjust)
            except Exception:
                error = traceback.format_exc()
            output = printed.getvalue()
            output += "\n" if output and not output.endswith("\n") else ""  # the fence begins a line of its own
            if match["head"] == "sh" and match["text"] is None:
                output = ""  # a command may print times and speeds
            results.append(Result(before, match["text"] or "", output, error))
            if error:
                break
    return results


def _run_block(head: str, body: str, path: str, before: int, space: dict[str, Any], adjust: Any) -> None:
    if head == "python":
        exec(compile("\n" * before + body, path, "exec"), space)
    elif head == "sh":
        for line in body.replace("\\\n", " ").splitlines():
            if line.startswith("sciformer "):
                _command(adjust(shlex.split(line, comments=True)[1:]))
    else:
        file = Path(head.split()[1])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(body, encoding="utf-8")


def _command(words: Words) -> None:
    from sciformer.cli.main import main as command

    os.environ["COLUMNS"] = "100"  # a table is as wide on every terminal
    status = command(words)
    if status:
        raise RuntimeError(f"exit status {status} of sciformer {shlex.join(words)}")


def write(path: Path, results: list[Result]) -> None:
    """Put what the blocks printed into the guide."""
    printed = iter(result.printed for result in results)

    def filled(match: re.Match[str]) -> str:
        output = next(printed)
        return f"```{match['head']}\n{match['body']}```\n" + (f"\n```text\n{output}```\n" if output else "")

    path.write_text(BLOCK.sub(filled, path.read_text(encoding="utf-8")), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the guide that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("guide", type=Path)
    parser.add_argument(
        "--pictures", type=Path, help="where pictures go (default: the folder pictures beside the guide, if it has any)"
    )
    parser.add_argument("--write", action="store_true", help="put what was printed into the guide")
    options = parser.parse_args(arguments)
    guide = options.guide.resolve()
    with tempfile.TemporaryDirectory() as nowhere:
        drawn = "](pictures/" in guide.read_text(encoding="utf-8")
        results = run(guide, options.pictures or (guide.parent / "pictures" if drawn else Path(nowhere)))
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
