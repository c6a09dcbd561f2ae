"""Reading of text files as bytes."""

import gzip
import tracemalloc

from sciformer.data.readers.text_parts import read_text


def test_a_small_gzip_file_takes_little_memory(tmp_path):
    (tmp_path / "poem.txt.gz").write_bytes(gzip.compress("Der Käfer saß.\n".encode() * 9, mtime=0))
    tracemalloc.start()
    try:
        assert read_text(tmp_path / "poem.txt.gz") == "Der Käfer saß.\n" * 9
        _, highest = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert highest < 100 << 20
