"""Terminal helpers: consoles, error messages, suggestions."""

from __future__ import annotations

import difflib
import io
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Stopped, UserError, is_out_of_memory, list_names, printable
from ..files.seal import run_files
from ..recipe.field import places
from ..recipe.registry import built_in

if TYPE_CHECKING:
    from cyclopts import CycloptsError
    from rich.console import Console

RECIPE_CHANGES: dict[str, Any] = {}  # changed keys of the recipe, from the command line


def rank() -> int:
    """Rank of this process under torchrun; 0 without torchrun."""
    return int(os.environ.get("RANK", "0"))


def console(stderr: bool = False) -> Console:
    """Console with colours on a terminal; a closed pipe raises BrokenPipeError."""
    from ..progress import PrintableConsole

    class Quiet(PrintableConsole):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Quiet(stderr=stderr, highlight=False, soft_wrap=stderr)


def log(text: str) -> None:
    """Print a message to stderr, on the first rank only."""
    if rank() == 0:
        print(printable(text), file=sys.stderr)


def say(text: str) -> None:
    """Print a result to stdout."""
    print(printable(text))


def for_stdout(text: str) -> str:
    """Text for stdout, without control characters if stdout is a terminal."""
    return printable(text) if sys.stdout.isatty() else text


class LossyFile(io.FileIO):
    """Output file: failed writes are ignored, except to a closed pipe."""

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Make stdout and stderr accept any text, even if closed or limited to ASCII.

    On a full disk, messages are lost, but a training continues.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller: >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, for as long as we live
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if not os.environ.get("COLUMNS", "").strip("0"):  # a width of 0 means that it is unknown
        os.environ.pop("COLUMNS", None)
    own = sys.__stderr__
    if own is not None and own is sys.stderr:
        lossy = io.BufferedWriter(LossyFile(own.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(lossy, own.encoding, "backslashreplace", line_buffering=True)


def run_and_report(work: Callable[[], Any]) -> int:
    """Run a command; return its exit status, print user errors, raise other errors."""
    from cyclopts import CycloptsError

    open_streams()
    try:
        work()
        sys.stdout.flush()
        return 0
    except CycloptsError as error:
        complain(describe_usage_error(error))  # on every rank: torchrun stops the others when one has ended
        return 2
    except UserError as error:
        complain(str(error))
        return 2
    except Stopped as error:
        log(str(error))
        return int(os.environ.get("SCIFORMER_STOP_STATUS", 128 + error.signal))
    except KeyboardInterrupt:
        log("interrupted")
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        discard_output()
        return 0
    except OSError as error:  # a full disk, a name that is too long, a folder without permission
        discard_output()
        where = str(error.filename)[:200] if error.filename else "a file or the output"
        complain(f"{where} cannot be read or written: {error.strerror or error}")
        return 2
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        complain(f"there is not enough memory{f': {error}' if str(error) else ''}. Use less data or a smaller model.")
        return 2
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 2


def complain(text: str) -> None:
    """Print an error to stderr, with the rank of a process if it is not 0."""
    from rich.text import Text

    who = f"rank {rank()}: " if rank() else ""
    console(stderr=True).print(Text(who) + Text("error: ", style="bold red") + Text(text))


def next_steps(*commands: str, path: Path) -> str:
    """Lines «next: COMMAND», with PATH in the commands replaced by a quoted path."""
    return "\n      ".join(["next: " + commands[0], *commands[1:]]).replace("PATH", shlex.quote(str(path)))


def discard_output() -> None:
    """Discard buffered output, after a closed pipe or on a full disk."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


# Mistakes in the command line itself


def no_changes(advice: str) -> None:
    """Refuse recipe keys (--KEY VALUE) in a command without a recipe."""
    if RECIPE_CHANGES:
        key = next(iter(RECIPE_CHANGES))
        raise UserError(f"--{key} changes a recipe key, which this command does not allow", hint=advice, key=key)


def describe_usage_error(error: CycloptsError) -> str:
    """Describe a usage error, with a suggestion and the command for help."""
    from cyclopts import MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

    verb = " ".join(error.command_chain or ())
    more = f"`sciformer {verb} --help`" if verb else "`sciformer --help`"
    error.verbose = False
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        stands = error.argument.index is not None  # a positional argument
        name = error.argument.name.lstrip("-").upper() if stands else error.argument.name
        if not name.startswith("-"):
            return f"`sciformer {verb}` needs {name}. {suggest_argument(name)}See {more}."
    if isinstance(error, UnusedCliTokensError):
        return f"Unexpected argument {error.unused_tokens[0] if error.unused_tokens else ''!r}. See {more}."
    text = str(error).rstrip()
    wrong = (error.unused_tokens or [""])[0]
    if isinstance(error, UnknownCommandError) and wrong.startswith("-"):
        near = difflib.get_close_matches(wrong, ("--help", "--version", "--install-completion"), n=1)
        text = f"Unknown option: {wrong}." + (f" Did you mean {near[0]}?" if near else "")
    if isinstance(error, UnknownOptionError) and "Did you mean" not in text:
        text += _suggest_key(error.token.keyword or error.token.value, list(error.root_input_tokens or ()))
    return f"{text} See {more}."


def suggest_argument(name: str) -> str:
    """Hint for a missing argument: known names, or a command to create a run."""
    if greedy := next((key for key, value in RECIPE_CHANGES.items() if isinstance(value, list)), ""):
        return f"All words after --{greedy} are its values, so write {name} before it. "
    if name == "RECIPE":
        from ..recipe import recipes

        return f"Known recipes: {list_names(recipes())}; or a .yaml file. `sciformer recipes` describes each. "
    if name == "RUN":
        found = find_runs()
        return f"Runs here: {list_names(found)}. " if found else "Train one first: `sciformer train RECIPE`. "
    if name == "WHAT":
        return f"Known simulations: {', '.join(sorted(built_in('simulation')))}. "
    if name == "KIND":
        return f"Known kinds: {', '.join(places('new'))}. "
    return ""


def _suggest_key(option: str, words: list[str]) -> str:
    """Suggest the recipe key for an unknown option, such as --model.depth for --depth."""
    from ..recipe import Recipe
    from ..recipe.document import flatten

    name = option.lstrip("-").partition("=")[0].replace("-", "_")
    for word in words[1:]:
        if word.startswith("-"):
            continue
        try:
            tree = Recipe.load(word).to_dict()
        except (UserError, ValueError):
            continue
        dotted = [".".join(map(str, keys)) for keys, _ in flatten(tree) if keys[0] != "about"]
        last = {key.rpartition(".")[2]: key for key in reversed(dotted)}
        near = difflib.get_close_matches(name, last, n=1, cutoff=0.75)
        return f" Did you mean --{last[near[0]]}?" if near else ""
    return ""


# Runs


def find_runs(folder: Path = Path("runs")) -> list[str]:
    """Run folders below `runs/`."""
    found = [path.parent for pattern in ("*", "*/*", "*/*/*") for path in folder.glob(f"{pattern}/run.json")]
    return sorted(map(str, found))


def check_run(path: Path) -> None:
    """Refuse a path without a run, and suggest the nearest run folder."""
    if path.suffix in (".pt", ".pth", ".ckpt", ".pkl", ".bin"):
        hint = "Name a run folder. Sciformer opens no files of this type, because they can run code."
        raise UserError(f"{path} is not a run folder", hint=hint, file=path)
    if path.is_file():
        run = next((above for above in path.resolve().parents if (above / "run.json").exists()), None)
        hint = f"Its run is {run}." if run else ""
        raise UserError(f"{path} is a file, not a run folder", hint=hint, file=path)
    if (path / "recipe.yaml").exists() or run_files(path).sealed:
        return
    there = find_runs() + find_runs(path)
    near = difflib.get_close_matches(str(path), there, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}?" if near else f"Runs here: {list_names(there)}." if there else ""
    why = "the folder has no recipe.yaml" if path.is_dir() else "the folder does not exist"
    hint = hint or "Train a run: sciformer train RECIPE --run FOLDER"
    raise UserError(f"there is no run at {path}: {why}", hint=hint, file=path)
