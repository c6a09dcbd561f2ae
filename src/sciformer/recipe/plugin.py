"""A user's own file of tokens, models or objectives, imported because the user said so and for no other reason.

    sciformer train my.yaml --plugin my_tokens.py

A run records the plugin's name and hash, and asks for the same file again; it never imports it by itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import UserError
from . import registry

LOADED_PLUGINS: dict[str, Plugin] = {}


@dataclass(frozen=True)
class Plugin:
    """A file that has been imported."""

    name: str
    path: Path
    sha256: str

    def record(self) -> dict[str, str]:
        """What a run keeps of it."""
        return {"name": self.name, "sha256": self.sha256}


def load(path: str | Path) -> Plugin:
    """Import a user's file, so that what it registers can be named in recipes.

    The same file again is not imported again; another file of the same name is refused, for a run asks for its plugins
    by name. A file that changed while Python runs is refused too: half of the old one would stay.
    """
    path = Path(path).expanduser().resolve()
    if not path.is_file():
        why = "is not a file" if path.exists() else "does not exist"
        raise UserError(f"--plugin must name a Python file, but {path} {why}", key="--plugin", file=path)
    if path.suffix != ".py":
        message = f"--plugin must name a Python file, but {path.name} does not end in .py"
        raise UserError(message, key="--plugin", file=path)
    code = path.read_bytes()
    plugin = Plugin(path.name, path, hashlib.sha256(code).hexdigest())
    known = LOADED_PLUGINS.get(plugin.name)
    if known and known.sha256 == plugin.sha256:
        return known
    if known and known.path == path:
        message = f"{path.name} has changed since it was loaded"
        raise UserError(message, hint="Start Python anew.", key="--plugin", file=path)
    if known:
        message = f"two plugins are called {path.name}: {known.path} and {path}"
        raise UserError(message, hint="Rename one of the two files.", key="--plugin", file=path)
    before = {section: dict(classes) for section, classes in registry.REGISTERED.items()}
    try:
        _import(f"sciformer_plugin_{path.stem}", path, code)
        _check(path, before)
    except BaseException:
        registry.REGISTERED.update(before)  # what a broken file registered does not stay
        raise
    LOADED_PLUGINS[plugin.name] = plugin
    return plugin


def record_plugins(plugins: Iterable[Plugin]) -> list[dict[str, str]]:
    """What a run keeps of its plugins: name and hash, never a path to import from."""
    return [plugin.record() for plugin in sorted(plugins, key=lambda plugin: plugin.name)]


def check_plugins(
    record: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None, given: Iterable[Plugin], accepted: bool = False
) -> None:
    """Refuse to go on with a run unless the plugins it recorded were given now, unchanged.

    record      {"name", "sha256"} of one plugin, a list of these, or None
    accepted    whether the user has said that a changed file is meant
    """
    now = {plugin.name: plugin for plugin in given}
    for entry in [record] if isinstance(record, Mapping) else record or ():
        plugin = now.get(entry["name"])
        if plugin is None:
            others = f"only {', '.join(sorted(now))}" if now else "no plugin"
            raise UserError(
                f"this run was made with the plugin {entry['name']}, but {others} was given",
                hint=f"Pass --plugin {entry['name']}, with the path to that file.",
                key="--plugin",
            )
        if plugin.sha256 != entry["sha256"] and not accepted:
            raise UserError(
                f"{plugin.path} (sha256 {plugin.sha256[:12]}) is not the {plugin.name} with which this run was made "
                f"(sha256 {entry['sha256'][:12]})",
                hint="Pass the file as it was then, or accept the changed file explicitly.",
                key="--plugin",
                file=plugin.path,
            )


def _import(name: str, path: Path, code: bytes) -> ModuleType:
    """The module of a file; the bytes that were hashed are the bytes that run."""
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # classes look up their module while they are made
    try:
        exec(compile(code, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        reason, line = _reason(error, path)
        message = f"{path.name} cannot be imported: {reason}"
        hint = "Correct the file and try again."
        raise UserError(message, hint=hint, key="--plugin", file=path, line=line) from error
    return module


def _reason(error: BaseException, path: Path) -> tuple[str, int | None]:
    """The error and the line of the user's own file that led to it, with its number."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{text}\n  in {path}, line {error.lineno}: {(error.text or '').strip()}", error.lineno
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return (f"{text}\n  in {path}, line {own[-1].lineno}: {own[-1].line}", own[-1].lineno) if own else (text, None)


def _check(path: Path, before: Mapping[str, Mapping[str, type[registry.Section]]]) -> None:
    """Refuse a file that registered nothing, or took a name from another plugin."""
    new = [
        (section, name)
        for section, classes in registry.REGISTERED.items()
        for name, found in classes.items()
        if before[section].get(name) is not found
    ]
    taken = [f"{section} {name}" for section, name in new if name in before[section]]
    if taken:
        message = f"{path.name} registers {', '.join(taken)}, which another plugin has registered already"
        raise UserError(message, hint="Choose other names.", key="--plugin", file=path)
    if not new:
        raise UserError(
            f"{path.name} registers nothing",
            hint='Write @register("tokens", "my-tokens") above a class; `from sciformer import register`.',
            key="--plugin",
            file=path,
        )
