"""The command `simulate`, with a subcommand for each simulation.

    sciformer simulate jets jets.root --number 2000 --classes QCD Tbqq

The options of a subcommand are the fields of the simulation's section. A subcommand is built when its name is used, so
that help on other commands imports no simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter as Argument
from inspect import Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from pydantic import ValidationError

from ..errors import UserError, one_of
from ..recipe.options import alternatives, annotation_inside, describe_mismatch, describe_type, is_list, parse_typed
from ..recipe.registry import built_in, find, names
from .app import Overwrite, Plugins, Quiet, app, load_plugins
from .terminal import no_changes, say

if TYPE_CHECKING:
    from ..data.readers.simulation import Simulation

ByClass = Annotated[Path | None, Parameter(help="Folder for one file per class, instead of a single file.")]
simulator = App(name="simulate", help="Simulate data and write them to a file.", sort_key=11, help_epilogue="")
app.command(simulator)


@simulator.default
def simulate(
    what: Annotated[str, Parameter(show=False)],
    /,
    *more: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    plugin: Plugins = (),
) -> None:
    """Simulate data and write the samples to a file."""
    load_plugins(plugin)
    one_of("the name of a simulation", what, names("simulation"))
    simulator.command(make_command(what), name=what, help_epilogue="")
    try:
        app(["simulate", what, *more], exit_on_error=False, print_error=False, result_action="return_value")
    finally:
        del simulator[what]


def __getattr__(name: str) -> Callable[..., None]:
    """Subcommand of a simulation; cyclopts imports commands as `module:name`."""
    if name not in built_in("simulation"):
        raise AttributeError(name)
    return make_command(name)


def import_commands() -> None:
    """Import all simulations, for the titles in the help."""
    for name in built_in("simulation"):
        simulator[name]


def make_command(name: str) -> Callable[..., None]:
    """Build the subcommand of a simulation, with its fields as options.

    Fields in `recipe_keys` are for recipes only and get no option.
    """
    kind: type[Simulation] = find("simulation", name)
    keys = [key for key in kind.model_fields if key not in ("kind", *kind.recipe_keys)]

    def command(
        out: Path | None = None,
        *,
        by_class: Path | None = None,
        overwrite: bool = False,
        quiet: bool = False,
        plugin: tuple[Path, ...] = (),
        **given: Any,
    ) -> None:
        no_changes(f"Use the options of this command: {', '.join(map(_option, keys))}")
        load_plugins(plugin)
        try:
            write_files(build(kind, name, given), out, by_class, overwrite, not quiet)
        except UserError as error:
            key = (error.key or "").removeprefix("data.")
            raise (error.with_fields(key=_option(key)) if key in keys else error) from error

    from ..files.tables import table_suffixes

    place: Any = Path | None if kind.class_files else Path
    default = None if kind.class_files else Argument.empty
    file = Annotated[place, Parameter(help=f"File to write: {', '.join(kind.suffixes or table_suffixes())}.")]
    defaults = {key: Argument.empty if kind.model_fields[key].is_required() else None for key in keys}
    arguments = [
        Argument("out", Argument.POSITIONAL_OR_KEYWORD, annotation=file, default=default),
        *([_keyword("by_class", ByClass)] if kind.class_files else []),
        *(_keyword(key, _annotation(kind, key), default) for key, default in defaults.items()),
        _keyword("overwrite", Overwrite, False),
        _keyword("quiet", Quiet, False),
        _keyword("plugin", Plugins, ()),
    ]
    command.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in arguments}
    command.__doc__ = kind.__doc__
    return command


def build(kind: type[Simulation], name: str, given: Mapping[str, Any]) -> Simulation:
    """Build a simulation from the options of its command.

    An option is text, parsed with the type of the field with the same name.
    """
    words = {key: list(word) if isinstance(word, tuple) else word for key, word in given.items() if word is not None}
    values = {key: parse_typed(word, annotation_inside(kind, key)) for key, word in words.items()}
    try:
        return kind.model_validate({"kind": name, **values})
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        text, hint = describe_mismatch(annotation_inside(kind, key), values.get(key))
        raise UserError(f"{_option(key)} {text}", hint=hint, key=_option(key)) from error


def write_files(section: Simulation, out: Path | None, by_class: Path | None, overwrite: bool, show: bool) -> None:
    """Write the samples to a file, or to a folder with a file for each class."""
    from ..data.readers.simulation import write_simulation

    if (out is None) == (by_class is None):
        message = "--out and --by-class cannot be used together" if out else "the output file is missing"
        hint = f"Name a file, --out {section.noun}{section.suffixes[0]}, or a folder, --by-class FOLDER."
        raise UserError(message, hint=hint, key="--out")
    section.check()
    files = {out: section} if out is not None else section.files_by_class(by_class or Path())
    for path in files:
        section.check_file(path, overwrite)
    for path, one in files.items():
        say(f"wrote {write_simulation(one, path, overwrite, show):,} {one.noun} to {path}")


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _keyword(name: str, annotation: Any, default: Any = None) -> Argument:
    return Argument(name, Argument.KEYWORD_ONLY, annotation=annotation, default=default)


def _annotation(kind: type[Simulation], key: str) -> Any:
    """Type and help of an option: a flag, or text for `build`."""
    info, wanted = kind.model_fields[key], annotation_inside(kind, key)
    default = None if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
    text = " ".join((info.description or "").split())
    if info.annotation is bool:
        return Annotated[bool | None, Parameter(help=text, negative=f"--no{_option(key)[1:]}" if default else ())]
    several = any(is_list(leaf) for leaf in alternatives(wanted))
    shown = " ".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
    said = "(default:" in text or default in (None, "", [])
    text = f"{text} ({describe_type(wanted)}" + (")" if said else f"; default: {shown})")
    metavar = info.annotation.__name__.upper() if info.annotation in (int, float) else None
    words = tuple[str, ...] if several else str
    return Annotated[words | None, Parameter(help=text, consume_multiple=several, metavar=metavar)]


for name in sorted(built_in("simulation")):
    simulator.command(f"{__name__}:{name}", name=name, help_epilogue="")
