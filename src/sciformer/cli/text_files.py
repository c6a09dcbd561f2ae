"""Translation and continuation of text files line by line, for the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..files.atomic import check_picture, check_writable, write_text
from ..progress import ProgressBar
from .terminal import for_stdout, log

if TYPE_CHECKING:
    from ..run import Run


def translate_file(
    run: Run, file: Path, out: Path | None, beam: int | None, penalty: float | None, picture: Path | None, line: int
) -> None:
    """Translate a text file to `out` or stdout; draw the alignment of the line with number `line`."""
    from ..generation.translate import translate

    if picture is not None:
        check_picture(picture)
    for place in filter(None, (out, picture)):
        check_writable(place)
    lines = read_text_lines(file)
    if picture is not None and not 1 <= line <= len(lines):
        message = f"--line must be between 1 and {len(lines)}, the lines of {file}, not {line}"
        raise UserError(message, key="--line", file=file)
    with ProgressBar(len(lines), "sentences") as bar:
        answers = translate(run, lines, beam=beam, penalty=penalty, on_progress=bar.update)
    if out is None:
        for answer in answers:
            print(for_stdout(answer))
    else:
        write_text(out, "".join(f"{answer}\n" for answer in answers))
        log(f"wrote {len(answers):,} translations to {out}")
    if picture is not None:
        from ..inspection.alignment import align, draw_alignment
        from ..inspection.plots.style import ignore_missing_glyphs
        from ..inspection.report.page import save_figure

        with ignore_missing_glyphs():
            found = align(run, lines[line - 1], answers[line - 1])
            save_figure(draw_alignment(found), picture)
        log(f"wrote {picture}: line {line} and its translation")


def check_prompts(prompt: str | None, file: Path | None, out: Path | None) -> None:
    """Refuse contradictory options of `generate` before any file is read."""
    if prompt is not None and file is not None:
        raise UserError("--prompt and --file cannot be used together", hint="Use one of them.", key="--prompt")
    if out is not None and file is None:
        hint = "Name the file of prompts with --file; without --out the text is printed."
        raise UserError("--out needs a file of prompts (--file)", hint=hint, key="--out")


def generate_file(run: Run, file: Path, out: Path | None, length: int, **wishes: Any) -> None:
    """Generate a text for each line of a file, in the order of the lines.

    An empty line gives a text without a prompt.
    """
    from ..generation.generate import generate_many

    if out is not None:
        check_writable(out)
    lines = read_text_lines(file)
    with ProgressBar(len(lines), "texts") as bar:
        answers = generate_many(run, [line or None for line in lines], length, on_progress=bar.update, **wishes)
    if out is None:
        for line, answer in zip(lines, answers):
            print(for_stdout(line + answer))
        return
    if out.suffix == ".jsonl":
        pairs = [{"prompt": line, "completion": answer} for line, answer in zip(lines, answers)]
        rows = [json.dumps(pair, ensure_ascii=False) for pair in pairs]
    else:
        rows = [answer.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") for answer in answers]
    write_text(out, "".join(f"{row}\n" for row in rows))
    log(f"wrote {len(answers):,} texts to {out}")


def read_text_lines(file: Path) -> list[str]:
    """Lines of a plain or gzip text file, or of the standard input if `file` is `-`."""
    from ..data.readers.text_parts import read_lines
    from ..data.source import find_files

    if str(file) == "-":
        lines = _standard_input().replace("\r\n", "\n").split("\n")
        return lines if lines[-1] else lines[:-1]
    return read_lines(find_files([str(file)], "a text file")[0])


def _standard_input() -> str:
    raw = sys.stdin.buffer.read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = error.start + len(raw) - len(error.object)  # counted without a byte order mark
        line = raw[:place].count(10) + 1
        message = f"the standard input is not UTF-8 text: {raw[place : place + 4].hex(' ')} in line {line}"
        raise UserError(message, hint="Convert it first: iconv -f latin1 -t utf-8", line=line) from error
