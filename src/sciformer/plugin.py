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

from . import registry
from .errors import UserError

LOADED: dict[str, Plugin] = {}


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
        raise UserError("--plugin to name a Python file", f"{path}, which does not exist or is not a file")
    if path.suffix != ".py":
        raise UserError("--plugin to name a Python file", f"{path.name}, which does not end in .py")
    code = path.read_bytes()
    plugin = Plugin(path.name, path, hashlib.sha256(code).hexdigest())
    known = LOADED.get(plugin.name)
    if known and known.sha256 == plugin.sha256:
        return known
    if known and known.path == path:
        raise UserError(f"{path.name} as it was when it was loaded", "another content", "Start Python anew.")
    if known:
        raise UserError(f"one plugin called {path.name}", f"two: {known.path} and {path}", "Rename one of them.")
    before = {section: dict(classes) for section, classes in registry.REGISTERED.items()}
    try:
        _import(f"sciformer_plugin_{path.stem}", path, code)
        _check(path, before)
    except BaseException:
        registry.REGISTERED.update(before)  # what a broken file registered does not stay
        raise
    LOADED[plugin.name] = plugin
    return plugin


def recorded(plugins: Iterable[Plugin]) -> list[dict[str, str]]:
    """What a run keeps of its plugins: name and hash, never a path to import from."""
    return [plugin.record() for plugin in sorted(plugins, key=lambda plugin: plugin.name)]


def required(
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
            others = f"only {', '.join(sorted(now))}" if now else "none"
            raise UserError(
                f"the plugin {entry['name']} with which this run was made",
                others,
                f"Pass --plugin {entry['name']}, with the path to that file.",
            )
        if plugin.sha256 != entry["sha256"] and not accepted:
            raise UserError(
                f"{plugin.name} as it was when this run was made (sha256 {entry['sha256'][:12]})",
                f"{plugin.path} with another content (sha256 {plugin.sha256[:12]})",
                "Pass the file of then, or accept the changed one explicitly.",
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
        raise UserError(f"{path.name} to import", _reason(error, path), "Mend the file and try again.") from error
    return module


def _reason(error: BaseException, path: Path) -> str:
    """The error and the line of the user's own file that led to it."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{text}\n  in {path}, line {error.lineno}: {(error.text or '').strip()}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{text}\n  in {path}, line {own[-1].lineno}: {own[-1].line}" if own else text


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
        raise UserError(f"names of its own in {path.name}", f"{', '.join(taken)}, which another plugin registered")
    if not new:
        raise UserError(
            f"{path.name} to register something",
            "nothing",
            'Write @register("tokens", "my-tokens") above a class; `from sciformer.registry import register`.',
        )
