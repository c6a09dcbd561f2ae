"""Atomic checkpoints: safetensors and JSON files, with a manifest of their hashes.

    step-0000040/weights.safetensors, optimizer.safetensors, ..., state.json, manifest.json
    step-0000040/weights-00001-of-00002.safetensors, ...    the same with FSDP2: a shard from each rank
    latest                       name of the newest checkpoint, for people; `load` lists the folders instead

A checkpoint is written under a temporary name, synced, hashed, renamed and synced again. At any time, either the older
or the newer checkpoint is therefore complete. The hashes detect a flipped bit, which safetensors does not. This module
never unpickles.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import UserError
from ..files.atomic import replace, sync
from ..files.seal import Unsound, is_seal, open_regular, parse_object, read_verified, seal_file
from .folder import assert_plain, is_alive, remove

if TYPE_CHECKING:
    from .distributed import Ranks

FORMAT, SHARDED_FORMAT = 1, 2
FREE_MARGIN_BYTES = 1 << 20  # disk space to leave free beside a checkpoint
STEP_FOLDER = re.compile(r"(?P<replaced>\.replaced-)?step-(?P<step>\d{7,})")
PARTIAL_FOLDER = re.compile(r"\.partial-step-\d{7,}-(?P<pid>\d+)")
SHARD_NAME = "{}-{:05d}-of-{:05d}.safetensors"
SHARD = re.compile(r"(?P<stem>\w[\w.-]*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State saved after a step: tensors by file and name, and plain JSON."""

    step: int
    tensors: dict[str, Mapping[str, Tensor]]
    state: dict[str, Any]
    path: Path


class ShardedTensors(Mapping[str, Tensor]):
    """Tensors divided among files along the first axis; a tensor is read on access."""

    def __init__(self, paths: list[Path]) -> None:
        self.places: dict[str, list[Path]] = {}
        for path in paths:
            try:
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118 (not a mapping)
                        self.places.setdefault(name, []).append(path)
            except SafetensorError as error:
                raise Unsound(f"{path.name} is not a safetensors file ({error})") from error

    def __getitem__(self, name: str) -> Tensor:
        parts = []
        for path in self.places[name]:
            with safe_open(path, framework="pt") as file:
                parts.append(file.get_tensor(name))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def save(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: dict[str, Any],
    *,
    keep: int = 2,
    also: int | None = None,
) -> Path:
    """Write the checkpoint of a step, then remove old checkpoints.

    The newest `keep` checkpoints and the checkpoint of step `also` are kept. Checkpoints of later steps are removed
    too; they exist only if the run was resumed from an earlier step.
    """
    assert min(step + 1, keep) >= 1, (step, keep)
    text, files = _json_text(state), _files(tensors)
    final, needed = folder / f"step-{step:07d}", _size(files) + len(text) + FREE_MARGIN_BYTES
    with _discarded_on_error(final, needed) as partial:
        _begin(partial, text, needed)
        seals = _write_files(partial, files)
        _commit(final, {"format": FORMAT, "step": step, "files": seals})
    _prune(folder, step, keep, also)
    return final


def save_shards(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: dict[str, Any],
    ranks: Ranks,
    *,
    keep: int = 2,
    also: int | None = None,
) -> Path:
    """Write the checkpoint of a step from all ranks at once; every rank must call it.

    tensors   the shards of this rank along the first axis; unsharded tensors are given by the first rank only

    No rank holds more than its own tensors. All ranks need the same folder, for example on a shared file system.
    """
    assert min(step + 1, keep) >= 1, (step, keep)
    text, files = _json_text(state), _files(tensors, (ranks.rank + 1, ranks.world))
    needed = round(ranks.sum(_size(files))[0]) + len(text) + FREE_MARGIN_BYTES
    final = folder / f"step-{step:07d}"

    def begin() -> None:
        with _discarded_on_error(final, needed) as partial:
            _begin(partial, text, needed)

    def finish() -> None:
        with _discarded_on_error(final, needed):
            for _, fault in written:
                if fault is not None:
                    raise UserError(**fault)
            seals = {name: seal for made, _ in written for name, seal in made.items()}
            _commit(final, {"format": SHARDED_FORMAT, "step": step, "files": seals})
        _prune(folder, step, keep, also)

    ranks.lead(begin)
    own: tuple[dict[str, Any], dict[str, Any] | None]
    try:
        own = _write_files(_partial(final, ranks.agree(os.getpid())), files, state=ranks.first), None
    except (OSError, SafetensorError) as error:
        own = {}, _write_error(folder, final, needed, error).fields
    written = ranks.gather(own)
    ranks.lead(finish)
    return final


def _json_text(state: dict[str, Any]) -> str:
    assert_plain(state, "state")
    return json.dumps(state)


def _files(
    tensors: Mapping[str, Mapping[str, Tensor]], shard: tuple[int, int] | None = None
) -> dict[str, dict[str, Tensor]]:
    """Tensors on the CPU, by file name.

    shard   number of the shard, and number of shards; both are part of the file name
    """
    assert all(re.fullmatch(r"\w[\w.-]*", stem) for stem in tensors), list(tensors)
    names = {stem: SHARD_NAME.format(stem, *shard) if shard else f"{stem}.safetensors" for stem in tensors}
    return {names[stem]: _storable_tensors(named) for stem, named in tensors.items()}


def _size(files: Mapping[str, Mapping[str, Tensor]]) -> int:
    """Upper bound of the size of tensor files, in bytes."""
    return sum(tensor.nbytes + 256 for named in files.values() for tensor in named.values())


def _partial(final: Path, pid: int) -> Path:
    """Temporary folder of process `pid` for an unfinished checkpoint."""
    return final.with_name(f".partial-{final.name}-{pid}")


@contextmanager
def _discarded_on_error(final: Path, needed: int) -> Iterator[Path]:
    """Context manager: temporary folder of a checkpoint, removed after an error."""
    partial = _partial(final, os.getpid())
    try:
        yield partial
    except BaseException as error:
        remove(partial)
        if isinstance(error, (OSError, SafetensorError)):
            raise _write_error(final.parent, final, needed, error) from error
        raise


def _begin(partial: Path, text: str, needed: int) -> None:
    """Make the temporary folder of a checkpoint, and write state.json into it."""
    folder = partial.parent
    folder.mkdir(parents=True, exist_ok=True)
    sync(folder.parent)
    _tidy(folder)
    if shutil.disk_usage(folder).free < needed:
        raise OSError("not enough space on the disk")
    partial.mkdir()
    (partial / "state.json").write_text(text)


def _write_files(
    partial: Path, files: Mapping[str, dict[str, Tensor]], state: bool = True
) -> dict[str, dict[str, Any]]:
    """Write files of tensors; return their sizes and hashes.

    state   whether to return the size and hash of state.json too
    """
    for name, named in files.items():
        safetensors.torch.save_file(named, partial / name)
        shutil.copymode(partial / "state.json", partial / name)  # safetensors lets only the owner read its files
    return {name: seal_file(partial / name) for name in [*["state.json"][: int(state)], *files]}


def _commit(final: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest and give the folder its final name."""
    partial = _partial(final, os.getpid())
    replace(partial / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    if os.path.lexists(final):  # a checkpoint of the same step: `_tidy` or `_prune` removes it
        os.rename(final, final.with_name(f".replaced-{final.name}"))
    os.rename(partial, final)
    sync(final.parent)
    replace(final.with_name("latest"), f"{final.name}\n")


def load(folder: Path, *, log: Callable[[str], None], step: int | None = None) -> Checkpoint | None:
    """Load the newest intact checkpoint, or the checkpoint of `step`.

    A damaged checkpoint is reported through `log`, and the next older checkpoint is tried. Without any checkpoint and
    without `step`, the result is None.
    """
    there = _find_checkpoints(folder)
    if not there and step is None:
        return None
    faults = []
    for number, path in [one for one in reversed(there) if step in (None, one[0])]:
        try:
            return _read(path, number, log)
        except Unsound as fault:
            faults.append(f"{path.name}: {fault}")
            log(f"The checkpoint {path.name} cannot be used: {fault}.")
    if not faults:
        found = ", ".join(map(str, steps(folder)))
        message = f"{folder} has no checkpoint of step {step}" + (f", only of {found}" if found else "")
        raise UserError(message, hint="Choose one of these steps." if found else "", file=folder)
    what = "" if step is None else f" of step {step}"
    message = f"{folder} has no intact checkpoint{what}: {'; '.join(faults)}"
    hint = "Restore a checkpoint from a copy, or move the folder away and start again."
    raise UserError(message, hint=hint, file=folder)


def steps(folder: Path) -> list[int]:
    """Steps of all checkpoints, including damaged checkpoints, in ascending order."""
    return sorted({step for step, _ in _find_checkpoints(folder)})


def _storable_tensors(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to contiguous CPU memory; tied weights are copied under each name."""
    seen: set[int] = set()
    result = {}
    for name, tensor in named.items():
        assert tensor.dtype != torch.complex128, f"{name}: safetensors has no complex128; use torch.view_as_real"
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return result


def _tidy(folder: Path) -> None:
    """Clean up after killed processes: remove partial folders and finish renames."""
    for path in list(folder.iterdir()):
        partial = PARTIAL_FOLDER.fullmatch(path.name)
        if partial and not is_alive(int(partial["pid"])):
            remove(path)
    for step, path in _find_checkpoints(folder):
        if path.name.startswith("."):
            final = path.with_name(path.name.removeprefix(".replaced-"))
            try:
                _read(final, step, lambda _: None)
                remove(path)
            except Unsound:
                remove(final)
                os.rename(path, final)


def _prune(folder: Path, step: int, keep: int, also: int | None) -> None:
    """Remove replaced and old checkpoints.

    The newest `keep` checkpoints up to `step`, and the checkpoint of step `also`, are kept.
    """
    kept = [*[number for number in steps(folder) if number <= step][-keep:], also]
    for number, path in _find_checkpoints(folder):
        if number not in kept or path.name.startswith("."):
            gone = folder / f".partial-step-{number:07d}-{os.getpid()}"
            with suppress(OSError):  # `remove` warns
                path = path.rename(gone)  # in one rename, not file by file
            remove(path)


def _write_error(folder: Path, final: Path, needed: int, error: Exception) -> UserError:
    reason = getattr(error, "strerror", None) or str(error)
    try:
        free = f"{shutil.disk_usage(folder).free:,} bytes free"
        older = [f"step {step}" for step in steps(folder)]
    except (OSError, UserError):
        free, older = "free space unknown", []
    intact = f"The older checkpoints ({', '.join(older)}) are intact" if older else "There is no older checkpoint"
    return UserError(
        f"{final} cannot be written: {reason} ({needed:,} bytes needed with a margin, {free})",
        hint=f"{intact}; free disk space and run the same command again.",
        file=final,
    )


def _find_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Steps and folders of all checkpoints, oldest first.

    If a step has two folders, the replaced folder comes before the new folder.
    """
    try:
        matches = [(match, path) for path in folder.iterdir() if (match := STEP_FOLDER.fullmatch(path.name))]
    except FileNotFoundError:
        return []
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"the folder of checkpoints {folder} cannot be read: {why}", file=folder) from error
    found = sorted((int(match["step"]), not match["replaced"], path) for match, path in matches)
    return [(step, path) for step, _, path in found]


def _read(path: Path, step: int, log: Callable[[str], None]) -> Checkpoint:
    """Verify a checkpoint against its manifest and load it."""
    try:
        if path.is_symlink() or not path.is_dir():
            raise Unsound("it is a link or a file instead of a folder")
        files = _manifest_files(path, step)
        tensors: dict[str, Mapping[str, Tensor]] = {}
        shards: dict[str, list[Path]] = {}
        state: Any = None
        for name, seal in files.items():
            shard = SHARD.fullmatch(name)
            data = read_verified(path / name, [seal], keep=not shard)
            if shard:
                shards.setdefault(shard["stem"], []).append(path / name)
            elif name == "state.json":
                state = parse_object(data, name)
            else:
                tensors[name.removesuffix(".safetensors")] = parse_tensors(path / name, data)
        tensors |= {stem: ShardedTensors(sorted(paths)) for stem, paths in shards.items()}
        others = sorted(entry.name for entry in path.iterdir() if entry.name not in {*files, "manifest.json"})
    except OSError as error:
        raise Unsound(f"it cannot be read ({error})") from error
    if others:
        names = ", ".join(map(ascii, others[:5])) + (" and more" if len(others) > 5 else "")
        log(f"The checkpoint {path.name} also contains {names}; Sciformer never opens these files.")
    return Checkpoint(step, tensors, state, path)


def _manifest_files(path: Path, step: int) -> dict[str, dict[str, Any]]:
    """Files in the manifest, with size and hash, after validation of the manifest."""
    with open_regular(path / "manifest.json") as file:
        manifest = parse_object(file.read(1 << 20), "manifest.json")
    form, files = manifest.get("format"), manifest.get("files")
    if type(form) is int and form > SHARDED_FORMAT:
        message = f"the checkpoint {path} has format {form}, but this Sciformer reads formats up to {SHARDED_FORMAT}"
        raise UserError(message, hint="It was written by a newer version: update Sciformer.", file=path)
    valid = form in (FORMAT, SHARDED_FORMAT) and manifest.get("step") == step
    if not valid or type(files) is not dict or "state.json" not in files:
        raise Unsound("its manifest.json is not a valid manifest of this step")
    for name, seal in files.items():
        # Names without path separators, and only the two types of file that `save` writes: no other file is opened.
        if not re.fullmatch(r"state\.json|\w[\w.-]*\.safetensors", name):
            raise Unsound(f"its manifest.json names {name!a}, which is not a checkpoint file")
        if not is_seal(seal):
            raise Unsound(f"its manifest.json has no size and hash of {name}")
        if shard := SHARD.fullmatch(name):
            stem, count = shard["stem"], int(shard["count"])
            every = [SHARD_NAME.format(stem, number, count) for number in range(1, count + 1)]
            if lost := [other for other in every if other not in files]:
                raise Unsound(f"its manifest.json has {name}, but not {lost[0]}")
    return files


def parse_tensors(path: Path, data: bytes) -> dict[str, Tensor]:
    """Parse the tensors of a safetensors file from verified bytes.

    data   content of the file; empty for a large file, which is then read from `path`
    """
    try:
        return safetensors.torch.load(data) if data else safetensors.torch.load_file(path)
    except (SafetensorError, KeyError, ValueError, RuntimeError, AssertionError) as error:
        raise Unsound(f"{path.name} is not a safetensors file ({error})") from error
