"""Damage to files: bits, cuts, copies, extreme numbers; for containers, also in the parts that are packed."""

import gzip
import io
import re
import zipfile

import numpy as np
import torch

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**40, 2**62, 2**63, 2**64 - 1)
WORDS = ("", "nan", "inf", "-1", "0", "1e999", "1e-999", "-", "9" * 30, "2" * 12, "true", "null", "[]", "{}", '"', "a")
WORDS += ("\u202e", "\x1b[31m", "\udc80", "\x00", "\ufeff", "'", "\t", "\r", "*a", "&a", "!!python/name:os.system")
NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?")


def damage(raw, rng):
    """Bytes with one to four random changes."""
    for _ in range(int(rng.integers(1, 5))):
        raw = CHANGES[rng.integers(len(CHANGES))](bytearray(raw), rng)
    return bytes(raw)


def place(raw, rng):
    """A random place; often near the begin, where headers are."""
    size = max(1, len(raw))
    return int(rng.integers(min(size, 512) if rng.random() < 0.5 else size))


def flip(raw, rng):
    if raw:
        raw[place(raw, rng)] ^= 1 << int(rng.integers(8))
    return raw


def cut(raw, rng):
    return raw[: place(raw, rng)]


def remove(raw, rng):
    at = place(raw, rng)
    del raw[at : at + int(rng.integers(1, 64))]
    return raw


def copy(raw, rng):
    at, to = place(raw, rng), place(raw, rng)
    raw[to:to] = raw[at : at + int(rng.integers(1, 256))]
    return raw


def noise(raw, rng):
    at = place(raw, rng)
    some = raw[at : at + int(rng.integers(1, 32))]
    raw[at : at + len(some)] = rng.bytes(len(some)) if rng.random() < 0.5 else bytes([rng.choice([0, 255])]) * len(some)
    return raw


def extreme(raw, rng):
    at, width = place(raw, rng), int(rng.choice([1, 2, 4, 8]))
    value = EXTREMES[rng.integers(len(EXTREMES))] % (1 << 8 * width)
    raw[at : at + width] = value.to_bytes(width, rng.choice(["little", "big"]))
    return raw


def word(raw, rng):
    """Another word in place of a number."""
    found = list(NUMBER.finditer(bytes(raw[: 1 << 16])))
    if found:
        start, stop = found[rng.integers(len(found))].span()
        raw[start:stop] = WORDS[rng.integers(len(WORDS))].encode("utf-8", "surrogateescape")
    return raw


def line(raw, rng):
    """A line removed, doubled, or moved."""
    lines = bytes(raw).split(b"\n")
    if len(lines) > 2:
        some = lines.pop(rng.integers(len(lines)))
        for _ in range(int(rng.integers(3))):
            lines.insert(rng.integers(len(lines)), some)
    return bytearray(b"\n".join(lines))


CHANGES = (flip, flip, cut, remove, copy, noise, extreme, extreme, word, word, line)


def damage_zip(raw, rng):
    """A zip file, with one damaged member in half of the cases: checksums do not hide the damage."""
    if rng.random() < 0.5:
        return damage(raw, rng)
    with zipfile.ZipFile(io.BytesIO(raw)) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    chosen = list(members)[rng.integers(len(members))]
    members[chosen] = damage(members[chosen], rng)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as whole:
        for name, member in members.items():
            whole.writestr(name, member)
    return made.getvalue()


def damage_gzip(raw, rng):
    """A gzip file, with damaged contents in half of the cases."""
    return damage(raw, rng) if rng.random() < 0.5 else gzip.compress(damage(gzip.decompress(raw), rng), 1, mtime=0)


def damage_tensors(tensors, rng):
    """Tensors with some missing, renamed, of another shape, type or value."""
    made = dict(tensors)
    for _ in range(int(rng.integers(1, 4))):
        name = sorted(made)[rng.integers(len(made))] if made else "a"
        tensor = made.pop(name, torch.zeros(1))
        match rng.integers(9):
            case 0:
                continue
            case 1:
                name = name.replace("weight", "w").replace("0", "7")
            case 2:
                tensor = tensor[:0] if tensor.dim() else tensor
            case 3:
                tensor = tensor[None]
            case 4:
                tensor = tensor.flatten()
            case 5:
                tensor = tensor.sum()
            case 6:
                tensor = torch.cat([tensor, tensor], -1) if tensor.dim() else tensor
            case 7:
                tensor = tensor.to((torch.int64, torch.float16, torch.bool, torch.complex64)[rng.integers(4)])
            case 8:
                tensor = torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else tensor
        made[name] = tensor.contiguous()
    return made


def generator(seed, number):
    """Random numbers of a case."""
    return np.random.default_rng([seed, number])
