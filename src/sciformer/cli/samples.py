"""Generated samples as files, with a contact sheet, for the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..files.atomic import check_picture, check_writable, make_folder
from ..progress import ProgressBar
from .terminal import say

if TYPE_CHECKING:
    from ..run import Run

SHEET = "contact-sheet.png"
MAX_NAME_LETTERS = 40  # of a prompt in a file name


def check_options(**given: bool) -> None:
    """Refuse options of text generation for a run that makes samples."""
    for name, here in given.items():
        if here:
            message = f"--{name} belongs to generated text, but this run makes samples"
            raise UserError(message, hint=f"Leave --{name} out.", key=f"--{name}")


def write_generated(
    run: Run,
    prompt: str | None,
    file: Path | None,
    out: Path,
    sampling: Mapping[str, Any],
    attention: Path | None,
    log: Callable[[str], None],
    **options: Any,
) -> None:
    """Write generated samples and their contact sheet into a folder.

    prompt     prompt, or None without a condition
    file       file with a prompt on each line, instead of `prompt`
    sampling   options of `Sampling`
    attention  figure of the attention to write, or None
    options    further arguments of `generate_samples`
    """
    from ..generation.samples import Maker, Wishes, generate_samples
    from ..generation.sampling import Sampling
    from ..inspection.report.page import save_figure
    from ..inspection.synthesis import draw_contact_sheet, draw_synthesis, watch_synthesis
    from .text_files import read_text_lines

    prompts: list[str | None] = [prompt] if file is None else [*read_text_lines(file)]
    if attention is not None:
        check_picture(attention)
        check_writable(attention)
    tokens = Maker(run, Wishes(options["guidance"], options["steps"])).tokens
    make_folder(out)
    with ProgressBar(len(prompts) * options["number"], "samples") as bar:
        found = generate_samples(
            run, prompts, sampling=Sampling(**sampling), log=log, on_progress=bar.update, **options
        )
    paths = [
        out / f"{file_name(text, row, len(prompts))}{number + 1:03d}{tokens.suffix}"
        for row, text in enumerate(prompts)
        for number in range(found.number)
    ]
    tokens.write_samples(found.table, paths)
    save_figure(draw_contact_sheet(tokens, found, prompts), out / SHEET)
    noun = "sample" if len(paths) == 1 else "samples"
    say(f"wrote {len(paths):,} {noun} and {SHEET} to {out}")
    if attention is not None:
        some = {name: options[name] for name in ("seed", "guidance", "steps")}
        seen = watch_synthesis(run, prompts[0], sampling=Sampling(**sampling), **some)
        save_figure(draw_synthesis(seen), attention)
        say(f"wrote {attention}: the first sample while it was made")


def file_name(prompt: str | None, row: int, prompts: int) -> str:
    """Beginning of the file names of a prompt, with the words of the prompt.

    If there are several prompts, the number of the prompt comes first.

    row       index of the prompt
    prompts   number of prompts
    """
    words = "".join(letter if letter.isalnum() or letter in ".=" else "-" for letter in (prompt or "").strip())
    number = f"{row + 1:0{len(str(prompts))}d}-" if prompts > 1 else ""
    return f"{number}{words[:MAX_NAME_LETTERS].strip('-') or 'sample'}-"
