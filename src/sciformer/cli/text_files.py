"""Files of texts for the commands translate and generate; captions of samples."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.columns import Table, rows_of, select
from ..errors import UserError
from ..files.atomic import check_picture, check_writable, write_text
from ..files.formats.base import as_text
from ..progress import ProgressBar
from .terminal import for_stdout, log

if TYPE_CHECKING:
    from ..data.source import Source
    from ..run import Run


def translate_file(
    run: Run, file: Path, out: Path | None, beam: int | None, penalty: float | None, picture: Path | None, line: int
) -> None:
    """Translate a text file to `out` or stdout; draw the alignment of one `line`."""
    from ..generation.translate import translate

    if picture is not None:
        check_picture(picture)
    for place in filter(None, (out, picture)):
        check_writable(place)
    lines = read_text_lines(file)
    if picture is not None and not 1 <= line <= len(lines):
        message = f"--line must be between 1 and {len(lines)}, the number of lines of {file}, not {line}"
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
        _write_alignment(run, lines[line - 1], answers[line - 1], picture)
        log(f"wrote {picture}: line {line} and its translation")


def _write_alignment(run: Run, sample: str | Table, translation: str, picture: Path) -> None:
    from ..inspection.alignment import align, draw_alignment
    from ..inspection.plots.style import ignore_missing_glyphs
    from ..inspection.report.page import save_figure

    with ignore_missing_glyphs():
        save_figure(draw_alignment(align(run, sample, translation)), picture)


def translates_text(run: Run) -> bool:
    """Whether a run translates texts; refuses runs not trained for translation."""
    from ..generation.translate import check_translates, source_tokens
    from ..tokens.protocols import Textual

    check_translates(run.assembly)
    return isinstance(source_tokens(run.assembly), Textual)


def translate_samples(
    run: Run,
    files: Sequence[Path],
    out: Path | None,
    overwrite: bool,
    beam: int | None,
    penalty: float | None,
    picture: Path | None,
    number: int,
) -> None:
    """Write a caption for each sample, as lines or as a table.

    With `picture`, the attention of sample `number` is drawn.
    """
    from ..data.source import pieces
    from ..files.tables import check_table, create_table, table_suffixes
    from ..generation.translate import columns_of, open_sources, translate

    as_table = out is not None and out.suffix.lower() in table_suffixes()
    if picture is not None:
        check_picture(picture)
    for place in filter(None, (out, picture)):
        check_writable(place)
    if out is not None and as_table:
        check_table(out, overwrite=overwrite)
    source = open_sources(run, list(files))
    total = sum(source.sizes)
    if picture is not None and not 1 <= number <= total:
        raise UserError(f"--line must be between 1 and {total}, the number of samples, not {number}", key="--line")
    for note in getattr(source, "notes", ()):
        log(f"note: {note}")
    with ProgressBar(total, "samples") as bar:
        answers = translate(run, source, beam=beam, penalty=penalty, on_progress=bar.update)
    if out is None:
        for answer in answers:
            print(for_stdout(answer))
    elif as_table:
        _, target = columns_of(run.assembly)
        with create_table(out, overwrite) as file:
            done = 0
            for table in pieces(source):
                count = rows_of(table)
                file.add(_with_answers(table, target, answers[done : done + count]))
                done += count
    else:
        write_text(out, "".join(f"{answer}\n" for answer in answers))
    if out is not None:
        log(f"wrote {len(answers):,} texts to {out}")
    if picture is not None:
        _write_alignment(run, _sample(source, number - 1), answers[number - 1], picture)
        log(f"wrote {picture}: sample {number} and its text")


def _sample(source: Source, row: int) -> Table:
    """One sample of a source, as a table with one row."""
    piece = 0
    while row >= source.sizes[piece]:
        row, piece = row - source.sizes[piece], piece + 1
    return select(source.load(piece), np.array([row]))


def _with_answers(table: Table, target: str, answers: list[str]) -> Table:
    """Scalar columns of the samples, and their captions in the column `target`."""
    plain = {
        name: as_text(column)
        for name, column in table.items()
        if isinstance(column, np.ndarray) and column.ndim == 1 and not isinstance(column[:1].tolist(), np.ndarray)
    }
    plain = {name: column for name, column in plain.items() if column.dtype.kind in "biufU"}
    renamed = {f"{name}_of_file" if name == target else name: column for name, column in plain.items()}
    return {**renamed, target: np.array(answers, str)}


def check_prompts(prompt: str | None, file: Path | None) -> None:
    """Refuse two sources of prompts before the run is opened."""
    if prompt is not None and file is not None:
        hint = "Use only --prompt or only --file."
        raise UserError("--prompt and --file cannot be used together", hint=hint, key="--prompt")


def check_out(out: Path | None, file: Path | None) -> None:
    """Refuse a file of texts without a file of prompts."""
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
