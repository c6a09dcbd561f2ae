"""Small files for the tests of readers, and where the shared ones are."""

import gzip

import pytest

from tests.paths import SHARED

DATA = SHARED / "text"
ENGLISH = [f"This is the {'very ' * (i * 7 % 5)}long sentence {i}" for i in range(40)]
GERMAN = [f"Dies ist der {'sehr ' * (i * 7 % 5)}lange Satz {i}" for i in range(40)]
shared = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data beside the repository")


def write(path, text):
    """A file of text or bytes, packed where its name says so."""
    raw = text if isinstance(text, bytes) else text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    return str(path)


def parts(opened):
    """The table of each part."""
    return {name: source.load(0) if source.sizes else {} for name, source in opened.sources.items()}
