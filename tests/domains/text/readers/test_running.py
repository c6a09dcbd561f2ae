import gzip
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciformer.data.source import find_files, pieces
from sciformer.data.split import Split
from sciformer.domains.text.readers.running import TextChunks, TextFiles, read_text
from tests.domains.text.readers.files import DATA as SHARED
from tests.domains.text.readers.files import shared, write
from tests.errors import refuses

PLAIN = "".join(f"line {i} of the text\n" for i in range(400))
WIDE = "ä€😀x\r\n" * 300


def texts(source):
    return [text for table in pieces(source) for text in table["text"]]


def opened(files, **options):
    sources = TextFiles(kind="text", files=files, **options).open().sources
    return {name: texts(source) for name, source in sources.items()}


@pytest.mark.parametrize("packed", [False, True])
def test_the_split_is_at_a_byte(tmp_path, packed):
    for count in (10, 999, 5557, len(PLAIN)):
        text = PLAIN[:count]
        name = write(tmp_path / ("a.txt.gz" if packed else "a.txt"), text)
        parts = opened([name])
        assert list(parts) == ["train", "valid"]
        assert parts["train"] == [text[: int(0.9 * count)]]
        assert parts["valid"] == [text[int(0.9 * count) :]]
        three = opened([name], split=Split(valid=0.2, test=0.1))
        assert "".join(three["train"] + three["valid"] + three["test"]) == text
        assert len(three["train"][0]) == int(round(0.7 * count, 6))
        assert list(opened([name], split=Split(valid=0, test=0))) == ["train"]
        assert len(opened([name], split=Split(valid=0.9, test=0))["train"][0]) == count // 10  # 1 - 0.9 < 0.1


@settings(max_examples=60, deadline=None)
@given(st.text("aä€😀\r\n", min_size=2, max_size=40), st.integers(1, 9), st.integers(0, 40))
def test_pieces_never_cut_a_character_or_the_end_of_a_line(tmp_path_factory, text, piece, cut):
    path = tmp_path_factory.mktemp("t") / "a.txt"
    write(path, text)
    size = len(text.encode())
    cut = min(cut, size)
    halves = [TextChunks([(path, 0, cut)], piece), TextChunks([(path, cut, size)], piece)]
    found = [part for half in halves for part in texts(half)]
    assert "".join(found) == text.replace("\r\n", "\n") == read_text(path)
    assert all(found)
    for half in halves:
        assert all(b[1] == a[2] for a, b in pairwise([text for texts in half.pieces for text in texts]))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_small_pieces_give_the_same_text(tmp_path, name):
    files = [write(tmp_path / name, WIDE), write(tmp_path / "b.txt", PLAIN)]
    small, large = opened(files, chunk_size=1024), opened(files)
    assert len(small["train"]) > 8
    for part in ("train", "valid"):
        assert "".join(small[part]) == "".join(large[part])
    assert "".join(large["train"] + large["valid"]) == WIDE.replace("\r\n", "\n") + PLAIN
    assert opened(files[:1])["train"][0].endswith(("\n", "ä", "€", "😀", "x"))


def test_several_files_are_one_text_and_fingerprints_tell_changes(tmp_path):
    files = [write(tmp_path / f"{name}.txt", name * 30) for name in "abc"]
    parts = opened([str(tmp_path / "*.txt")])
    assert parts == {"train": ["a" * 30, "b" * 30, "c" * 21], "valid": ["c" * 9]}
    data = TextFiles(kind="text", files=files)
    before = data.open().fingerprint
    assert list(before) == files
    write(tmp_path / "b.txt", "b" * 29 + "x")
    after = data.open().fingerprint
    assert [name for name in files if before[name] != after[name]] == files[1:2]
    assert texts(data.read(files[:2])) == ["a" * 30, "b" * 29 + "x"]


def test_lines_and_paragraphs(tmp_path):
    name = write(tmp_path / "a.txt", "one\r\ntwo\r\n\r\n\n three\nfour\n \t\nfive\n\n\n\n")
    lines, paragraphs = ["one", "two", " three", "four", "five"], ["one\ntwo", " three\nfour", "five"]
    for documents, found in (("line", lines), ("paragraph", paragraphs)):
        assert texts(TextFiles(kind="text", documents=documents).read([name])) == found
    parts = opened([name], documents="line", split=Split(valid=0.2, test=0.2))
    assert sorted(text for part in parts.values() for text in part) == sorted(lines)
    assert [len(part) for part in parts.values()] == [3, 1, 1]


def test_empty_lines_are_kept_where_answers_stand_beside_them(tmp_path):
    name = write(tmp_path / "a.txt", "one\r\n\r\n \r\ntwo\r\n")
    data = TextFiles(kind="text", files=[name], documents="line")
    assert texts(data.read([name])) == ["one", "two"]
    assert texts(data.aligned([name])) == ["one", "", " ", "two"]
    whole = TextFiles(kind="text", files=[name])
    assert texts(whole.aligned([name])) == texts(whole.read([name])) == ["one\n\n \ntwo\n"]


def test_bad_bytes_are_named(tmp_path):
    raw = b"good\n" * 500 + b"caf\xe9 latin\n" + b"good\n" * 500
    for options in ({}, {"chunk_size": 1024}, {"documents": "line"}):
        name = write(tmp_path / "a.txt", raw)
        with refuses("UTF-8", "e9 20 6c 61", "byte 2503", "line 501", file=name, line=501, hint="iconv"):
            opened([name], **options)


@pytest.mark.parametrize(
    ("raw", "name", "mentions"),
    [
        (b"", "a.txt", []),
        (b"\x7fELF\0\0\1" * 99, "a.txt", ["binary"]),
        ("text".encode("utf-16") * 99, "a.txt", ["binary", "iconv -f utf-16"]),
        (gzip.compress(b"text" * 9999, mtime=0)[:-30], "a.txt.gz", ["gzip"]),
        (gzip.compress(b"text" * 9999, mtime=0)[:20] + b"\xff" * 40, "a.txt.gz", ["gzip"]),
        (b"not packed at all", "a.txt.gz", ["Not a gzipped file"]),
    ],
)
@pytest.mark.parametrize("documents", ["file", "line"])
def test_broken_files(tmp_path, raw, name, mentions, documents):
    path = tmp_path / name
    path.write_bytes(raw)
    with refuses(*mentions, path, file=path):
        opened([str(path)], documents=documents)


@pytest.mark.parametrize("documents", ["file", "line"])
def test_a_packed_file_of_nothing(tmp_path, documents):
    path = write(tmp_path / "a.txt.gz", "")
    with refuses("0" if documents == "file" else "line", key="data.files"):
        opened([path], documents=documents)


def test_files_that_are_not_there(tmp_path, monkeypatch):
    write(tmp_path / "shakespeare.txt", PLAIN)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, mentions, hint in [
        ("shakespear.txt", ["'shakespear.txt'", "shakespeare.txt"], None),
        ("nothing/like/it", ["'nothing/like/it'", tmp_path], None),
        ("folder", [], "folder/*"),
        ("*.csv", ["'*.csv'"], None),
    ]:
        with refuses(*mentions, file=name, hint=hint):
            opened([name])
    with refuses("text files", key="data.files", hint="--data.files"):
        opened([])
    with refuses(len(PLAIN), key="data.split"):
        opened(["shakespeare.txt"], split=Split(valid=0.9, test=0.3))
    for documents in ("file", "line"):
        with refuses("'author'", key="data.split.by"):
            opened(["shakespeare.txt"], split=Split(by="author"), documents=documents)


def test_names_with_marks_and_files_meant_twice(tmp_path, here, monkeypatch):
    for name in ("a[1].txt", "b.txt", "c.txt"):
        write(tmp_path / name, name * 9)
    assert [path.name for path in find_files(["a[1].txt"])] == ["a[1].txt"]
    assert [path.name for path in find_files(["c.txt", "*.txt"])] == ["c.txt", "a[1].txt", "b.txt"]
    assert [path.name for path in find_files([str(tmp_path / "?.txt")])] == ["b.txt", "c.txt"]
    (tmp_path / "down").mkdir()
    monkeypatch.chdir(tmp_path / "down")
    assert len(find_files(["../*.txt"])) == 3


def test_a_part_without_a_character_is_no_part(tmp_path):
    name = write(tmp_path / "a.txt", "abcdefg😀")
    assert opened([name]) == {"train": ["abcdefg😀"]}
    assert TextChunks([(tmp_path / "a.txt", 9, 10)], 5).sizes == []


@pytest.mark.parametrize("documents", ["file", "line", "paragraph"])
def test_parts_in_files_of_their_own(tmp_path, here, monkeypatch, documents):
    for name in ("train", "valid", "test", "odd"):
        write(tmp_path / f"{name}.txt", "".join(f"{name} {i}\n\n" for i in range(10)))
    given = {"valid": ["valid.txt"], "test": ["test.txt"], "extra_parts": {"odd": ["odd.txt"]}}
    section = TextFiles(kind="text", files=["train.txt"], documents=documents, split=Split(), **given).absolute_paths()
    monkeypatch.chdir("/")
    found = {name: "".join(texts(source)) for name, source in section.open().sources.items()}
    assert list(found) == ["train", "valid", "test", "odd"]
    for name, text in found.items():
        assert text.count(name) == 10
    assert list(section.open().fingerprint) == [f"{tmp_path}/{name}.txt" for name in found]
    assert (section.extra_parts["odd"], section.valid) == ([f"{tmp_path}/odd.txt"], [f"{tmp_path}/valid.txt"])
    shared_out = section.model_copy(update={"valid": [], "extra_parts": {}, "split": Split(valid=0.2, test=0.2)})
    parts = {name: "".join(texts(source)) for name, source in shared_out.open().sources.items()}
    assert list(parts) == ["train", "valid", "test"]
    assert 1 <= parts["valid"].count("train") <= 2
    assert parts["test"].count("test") == 10
    packed = write(tmp_path / "none.txt.gz", "")
    with refuses("data.valid", key="data.valid"):
        section.model_copy(update={"valid": [packed]}).open()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("options", [{}, {"chunk_size": 1024}, {"documents": "line"}])
def test_broken_bytes_are_counted_and_replaced(tmp_path, monkeypatch, name, options):
    monkeypatch.setattr("sciformer.data.readers.text_parts.CHUNK_BYTES", 777)  # characters are cut by the counting
    text = "Schöne Grüße, 10 € \ufffd 😀\n" * 200
    raw = bytearray(text.encode())
    for place in range(0, len(raw), 100):
        raw[place] = 0xFF
    wrong = bytes(raw)
    path = write(tmp_path / name, wrong)
    count = wrong.decode(errors="replace").count("\ufffd") - wrong.decode(errors="ignore").count("\ufffd")
    with refuses(count, "iconv", file=path, line=1, hint="--data.errors replace"):
        opened([path], **options)
    section = TextFiles(kind="text", files=[path], errors="replace", split=Split(valid=0, test=0), **options).open()
    assert section.notes == [f"{count} invalid bytes in {path} are read as U+FFFD."]
    joined = "".join(texts(section.sources["train"]))
    assert joined.replace("\n", "") == wrong.decode(errors="replace").replace("\n", "")
    read = TextFiles(kind="text", errors="replace").read([path])
    assert texts(read) == [wrong.decode(errors="replace")]


def test_broken_bytes_after_a_byte_order_mark_and_zeros(tmp_path):
    name = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\ntw\xffo\n")
    with refuses("ff", "byte 9", file=name, line=2):
        opened([name])
    name = write(tmp_path / "a.txt", b"one\0two\n" * 3 + b"more of it\n" * 50)
    with refuses("binary", file=name, hint="--data.errors replace"):
        opened([name])
    section = TextFiles(kind="text", files=[name], errors="replace").open()
    assert texts(section.sources["train"])[0].startswith("one\ufffdtwo\n")
    assert section.notes == [f"3 invalid bytes in {name} are read as U+FFFD."]
    name = write(tmp_path / "a.txt", "text".encode("utf-16") * 99)
    with refuses(file=name, hint="iconv -f utf-16"):
        opened([name], errors="replace")


def test_one_line(tmp_path):
    name = write(tmp_path / "a.txt", "a single line of text")
    assert opened([name]) == {"train": ["a single line of t"], "valid": ["ext"]}
    for documents in ("line", "paragraph"):
        with refuses("2", documents, "valid", "1", key="data.split.valid", hint="data.split.valid to 0"):
            opened([name], documents=documents)
        whole = opened([name], documents=documents, split=Split(valid=0, test=0))
        assert whole == {"train": ["a single line of text"]}
        judged = opened([name], documents=documents, valid=[name])
        assert judged["train"] == judged["valid"] == ["a single line of text"]


@shared
def test_wikitext():
    names = {part: f"{SHARED}/wikitext2/{part}.txt.gz" for part in ("train", "valid", "test")}
    found = opened([names["train"]], valid=[names["valid"]], test=[names["test"]])
    words = {part: (len(text[0].split()), text[0].count("\n")) for part, text in found.items()}
    assert words == {"train": (2_051_910, 36_718), "valid": (213_886, 3_760), "test": (241_211, 4_358)}
