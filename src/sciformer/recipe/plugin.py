"""Plugins: a user's Python file or folder, imported only on explicit request.

    sciformer train my.yaml --plugin my_tokens.py      a file, whose classes are registered with @register
    sciformer train photons/pulses --plugin photons    a folder with a manifest FIELD, like the folders below domains/

A run records the names and hashes of its plugins, and later needs the same code again. It never imports a plugin by
itself.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import UserError
from . import registry
from .field import EXTENSION_POINTS, PLUGIN_FIELDS, Field, fields, places

LOADED_PLUGINS: dict[str, Plugin] = {}
MANIFEST_HINT = "Write FIELD = Field(...) there; `from sciformer.recipe.field import Field`."


@dataclass(frozen=True)
class Plugin:
    """Imported file or folder: name, path and hash."""

    name: str
    path: Path
    sha256: str


def load(path: str | Path) -> Plugin:
    """Import a plugin, so that recipes can use its names.

    A plugin is imported once. A second plugin of the same name is refused, because runs identify plugins by name. A
    plugin that has changed since its import is refused too, because parts of the old code would stay in memory.
    """
    path = Path(path).expanduser().resolve()
    code = _read(path)
    plugin = Plugin(path.name, path, _hash(code))
    known = LOADED_PLUGINS.get(plugin.name)
    if known and known.sha256 == plugin.sha256:
        return known
    if known and known.path == path:
        raise _error(path, f"{path.name} has changed since it was loaded", "Restart Python.")
    if known:
        raise _error(path, f"two plugins are called {path.name}: {known.path} and {path}", "Rename one of them.")
    before, manifests = {point: dict(some) for point, some in registry.REGISTERED.items()}, dict(PLUGIN_FIELDS)
    name = f"sciformer_plugin_{path.stem}"
    importer = _Importer(name, path, code)
    sys.meta_path.insert(0, importer)
    try:
        module = _import(name, path, importer)
        if path.is_dir():
            PLUGIN_FIELDS[path.name] = name, _manifest_of(module, path)
        _check(path, before)
    except BaseException:  # forget all of a broken plugin
        sys.meta_path.remove(importer)
        for one in [one for one in sys.modules if f"{one}.".startswith(f"{name}.")]:
            del sys.modules[one]
        registry.REGISTERED.update(before)
        for field in PLUGIN_FIELDS.keys() - manifests.keys():
            del PLUGIN_FIELDS[field]
        raise
    LOADED_PLUGINS[plugin.name] = plugin
    return plugin


def _read(path: Path) -> dict[str, bytes]:
    """Contents of the files of a plugin, by file name."""
    if path.is_dir():
        if not (path / "__init__.py").is_file():
            message = f"--plugin must name a Python file or a package, but {path} has no __init__.py"
            raise _error(path, message, MANIFEST_HINT)
        files = sorted(file for file in path.rglob("*") if file.suffix in (".py", ".yaml") and file.is_file())
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
    if not path.is_file():
        raise _error(path, f"--plugin must name a Python file, but {path} does not exist")
    if path.suffix != ".py":
        raise _error(path, f"--plugin must name a Python file, but {path.name} does not end in .py")
    return {path.name: path.read_bytes()}


def _error(path: Path, message: str, hint: str = "", line: int | None = None) -> UserError:
    return UserError(message, hint=hint, key="--plugin", file=path, line=line)


def _hash(code: Mapping[str, bytes]) -> str:
    """SHA-256 of a file, or of the names and contents of several files."""
    digest = hashlib.sha256()
    for name, text in code.items():
        digest.update(text if len(code) == 1 else b"%s\0%d\0%s" % (name.encode(), len(text), text))
    return digest.hexdigest()


def record_plugins(plugins: Iterable[Plugin]) -> list[dict[str, str]]:
    """Names and hashes of plugins for run.json, without paths to import from."""
    ordered = sorted(plugins, key=lambda plugin: plugin.name)
    return [{"name": plugin.name, "sha256": plugin.sha256} for plugin in ordered]


def check_plugins(record: Iterable[Mapping[str, str]], given: Iterable[Plugin], accepted: bool = False) -> None:
    """Refuse a run with missing plugins, or with changed plugins unless `accepted`."""
    now = {plugin.name: plugin for plugin in given}
    for entry in record:
        if not isinstance(entry, Mapping) or not {"name", "sha256"} <= entry.keys():
            message = "run.json has no name and sha256 for a plugin of this run"
            raise UserError(message, hint="The file is damaged: restore it from a copy.", key="plugins")
        plugin = now.get(entry["name"])
        if plugin is None:
            others = f"the plugins loaded are {', '.join(sorted(now))}" if now else "no plugin is loaded"
            message = f"this run needs the plugin {entry['name']}, but {others}"
            raise UserError(message, hint=f"Pass --plugin {entry['name']}, with its path.", key="--plugin")
        if plugin.sha256 != entry["sha256"] and not accepted:
            hashes = f"sha256 {plugin.sha256[:12]}, not {entry['sha256'][:12]}"
            message = f"{plugin.path} differs from the plugin {plugin.name} of this run ({hashes})"
            hint = "Pass the original file, or accept the change: --accept-changes, or accept_changes=True in Python."
            raise _error(plugin.path, message, hint)


class _Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Importer of the modules of a plugin, from the hashed bytes."""

    def __init__(self, package: str, path: Path, code: Mapping[str, bytes]) -> None:
        self.package = package
        self.files: dict[str, tuple[Path, bytes]] = {package: (path, code.get(path.name, b""))}
        for file in code if path.is_dir() else ():
            inner = file.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")
            self.files[f"{package}.{inner}".rstrip(".")] = path / file, code[file]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self.files:
            return None
        file, _ = self.files[name]
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        loader = None if name == self.package else self  # the usual loader of the package finds its recipes
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)

    def exec_module(self, module: ModuleType) -> None:
        file, code = self.files[module.__name__]
        exec(compile(code, str(file), "exec", dont_inherit=True), module.__dict__)


def _import(name: str, path: Path, importer: _Importer) -> ModuleType:
    """Import the file of a plugin, or the `__init__.py` of a folder."""
    spec = importer.find_spec(name)
    assert spec is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # classes look up their module
    try:
        importer.exec_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, UserError) and error.key == "--plugin":
            raise
        reason, line = _reason(error, path)
        message = f"{Path(spec.origin or path).name} cannot be imported: {reason}"
        raise _error(path, message, "Correct the file and try again.", line) from error
    return module


def _manifest_of(module: ModuleType, folder: Path) -> Field:
    manifest = getattr(module, "FIELD", None)
    if not isinstance(manifest, Field):
        raise _error(folder, f"{folder.name}/__init__.py has no manifest", MANIFEST_HINT)
    known = {point: {*registry.SHARED_PLACES[point], *places(point)} for point in EXTENSION_POINTS}
    taken = [f"{point} {one}" for point in EXTENSION_POINTS for one in getattr(manifest, point) if one in known[point]]
    if taken or folder.name in fields():
        what = ", ".join(taken) or f"the field {folder.name}"
        message = f"{folder.name} adds {what}, which already exists in Sciformer or in another plugin"
        raise _error(folder, message, "Choose different names.")
    return manifest


def _reason(error: BaseException, path: Path) -> tuple[str, int | None]:
    """Error text with the file and line of the plugin, and the line number."""
    text = f"{type(error).__name__}: {error}"
    places = [(frame.filename, frame.lineno, frame.line) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno, (error.text or "").strip()))
    own = [place for place in places if path in (Path(place[0]), *Path(place[0]).parents)]
    if not own:
        return text, None
    file, line, code = own[-1]
    return f"{text}\n  in {file}, line {line}: {code}", line


def _check(path: Path, before: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a plugin without registered names, or with a name of another plugin."""
    new = [
        (section, name)
        for section, classes in registry.REGISTERED.items()
        for name, found in classes.items()
        if before[section].get(name) is not found
    ]
    taken = [f"{section} {name}" for section, name in new if name in before[section]]
    if taken:
        message = f"{path.name} registers {', '.join(taken)}, which another plugin has already registered"
        raise _error(path, message, "Choose different names.")
    if not new and not path.is_dir():
        hint = 'Write @register("tokens", "my-tokens") above a class; `from sciformer import register`.'
        raise _error(path, f"{path.name} registers nothing", hint)
