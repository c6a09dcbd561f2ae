"""A page holds what it was given, escaped, and nothing from elsewhere."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sciformer.inspection.plots.curves import draw_confusion
from sciformer.inspection.report.page import CONTENT_SECURITY_POLICY, UNPRINTABLE_PATTERN, Page
from tests.errors import refuses

VOID = {"meta", "img"}
PLAIN = "head title style body header h1 main ol li table caption thead tbody tr figure figcaption dl dt dd code"
ATTRIBUTES = {tag: set() for tag in [*PLAIN.split(), "details", "summary"]} | {  # all that the builder writes
    "html": {"lang"},
    "meta": {"charset", "http-equiv", "content", "name"},
    "section": {"aria-labelledby"},
    "h2": {"id"},
    "p": {"class"},
    "div": {"class", "role", "aria-label", "tabindex"},
    "th": {"scope", "class"},
    "td": {"class"},
    "img": {"width", "height", "alt", "src"},
    "pre": {"tabindex"},
    "nav": {"aria-label"},
    "a": {"href"},
}


class Reader(HTMLParser):
    """Reads a page strictly: every tag known and closed in order; texts by tag."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.attributes, self.declarations = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert {name for name, _ in attrs} <= ATTRIBUTES[tag], (tag, attrs)
        assert len(attrs) == len(dict(attrs))
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.append((self.open[-1], data))

    def handle_comment(self, data):
        raise AssertionError(data)

    def handle_decl(self, decl):
        self.declarations.append(decl)

    handle_pi = unknown_decl = handle_comment

    def under(self, tag):
        return [text for found, text in self.texts if found == tag and text.strip()]

    def values(self, name):
        return [value for _, found, value in self.attributes if found == name]


def picture():
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1])
    return figure


def full(word, figure=None):
    """A page with one word in every place."""
    page = Page(word, word)
    for _ in range(5):
        page.section(word, note=word)
    page.text(word)
    page.table([word, word], [[word, word], [1, 2.0]], caption=word)
    page.facts({word: word})
    page.code(word)
    with page.details(word):
        page.text(word)
    if figure is not None:
        page.figure(figure, word, alt=word)
    return page


@given(st.text(min_size=1).filter(str.strip))
@example("<script>alert(1)</script>")
@example('" onload="alert(1)')
@example("' x='")
@example("</style></title><img src=x>")
@example("-->]]><!-- <?php &lt; &#60; &amp")
@example("a\n\n<b>\r\n\x00\x0b\u2028")
@settings(max_examples=40, deadline=None)
def test_every_text_is_escaped_in_every_place(word):
    text, plain = full(word).html(), full("word").html()
    reader, expected = Reader(text), Reader(plain)
    more = reader.tags.count("p") - expected.tags.count("p")  # `text` parts paragraphs at empty lines
    assert [tag for tag in reader.tags if tag != "p"] == [tag for tag in expected.tags if tag != "p"]
    names, usual = ([pair[:2] for pair in page.attributes if pair[1] != "class"] for page in (reader, expected))
    assert names == usual
    assert set(reader.values("class")) <= {"subtitle", "note", "card", "scroll", "number"}
    assert (text.count("<"), text.count(">")) == (plain.count("<") + 2 * more, plain.count(">") + 2 * more)
    assert "".join(data for tag, data in reader.texts if tag == "code") == UNPRINTABLE_PATTERN.sub("\ufffd", word)


def test_texts_come_out_as_they_went_in():
    word = """a <b> & "c" 'd' &amp;"""
    reader = Reader(full(word, picture()).html())
    for tag, count in [("title", 1), ("h1", 1), ("h2", 5), ("a", 5), ("caption", 1), ("figcaption", 1), ("code", 1)]:
        assert reader.under(tag) == [word] * count
    assert reader.under("p") == [word] * 8
    assert reader.under("th") == [word, word, word, "1"]
    assert reader.under("td") == [word, "2"]
    assert reader.under("dt") == reader.under("dd") == reader.under("summary") == [word]
    assert reader.values("alt") == [word]
    assert word in reader.values("aria-label")


def test_halves_of_characters_do_not_break_the_file(tmp_path):
    full("caf\udce9").write(tmp_path / "page.html")
    assert "caf\ufffd" in (tmp_path / "page.html").read_text("utf-8")


def test_nothing_comes_from_elsewhere():
    text = full("word", picture()).html()
    reader = Reader(text)
    assert reader.declarations == ["DOCTYPE html"]
    assert CONTENT_SECURITY_POLICY in reader.values("content")
    for part in ("default-src 'none'", "img-src data:", "style-src 'unsafe-inline'"):
        assert part in CONTENT_SECURITY_POLICY
    assert "'none'" in text  # the policy is legible and not mangled by escapes
    assert all(value.startswith("data:image/png;base64,") for value in reader.values("src"))
    assert all(re.fullmatch(r"#section-\d", value) for value in reader.values("href"))
    bare = re.sub(r"base64,[^\"]+", "", text)
    assert not re.search(r"https?:|//|url\(|@import|<script|javascript:", bare)
    assert text.index("Content-Security-Policy") < text.index("<style")
    assert text.index('charset="utf-8"') < 200


def test_headings_are_in_order_and_sections_are_named_by_them():
    reader = Reader(full("word").html())
    assert [tag for tag in reader.tags if re.fullmatch(r"h\d", tag)] == ["h1"] + ["h2"] * 5
    assert reader.values("id") == reader.values("aria-labelledby") == [f"section-{n}" for n in range(1, 6)]
    assert reader.values("href") == [f"#{name}" for name in reader.values("id")]
    assert reader.values("lang") == ["en"]


def test_tables_align_numbers_and_shorten_floats():
    page = Page("title")
    rows = [["a", 0.123456, np.float32(2), 3, "0.91 ± 0.02", None], ["b", float("nan"), -1e-9, 10**6, "—", "x"]]
    page.table(["name", "p", "q", "n", "score", "note"], rows, "caption")
    text = page.html()
    assert [line.count('class="number"') for line in text.splitlines() if line.startswith("<tr>")] == [4, 4]
    assert Reader(text).under("td") == ["0.1235", "2", "3", "0.91 ± 0.02", "nan", "-1e-09", "1000000", "—", "x"]
    few = Page("title")
    few.table(["name", "score", "words"], [["a", 0.5, "too"], ["b", "too few", "few"], ["c", "", 1]], "caption")
    assert few.html().count('<td class="number">') == 3
    page.table(["empty"], [], "no rows")
    assert Reader(page.html()).under("caption") == ["caption", "no rows"]
    with refuses(2, [1]):
        page.table(["a", "b"], [[1, 2], [1]], "caption")


def test_paragraphs_are_parted_by_empty_lines():
    page = Page("title")
    page.text("one\ntwo\n \n\nthree\n")
    assert Reader(page.html()).under("p") == ["one\ntwo", "three"]


def test_details_fold_and_close_also_after_an_error():
    page = Page("title")
    with page.details("outer"), page.details("inner"):
        page.code("x")
        with refuses("'no'"):
            page.section("no")
    with pytest.raises(KeyError), page.details("broken"):
        raise KeyError
    reader = Reader(page.html())
    assert reader.under("summary") == ["outer", "inner", "broken"]


def test_what_would_be_empty_is_refused():
    with refuses("alt="):
        Page("title").figure(picture(), "caption", alt=" ")
    with refuses():
        Page("title").facts({})


def test_pictures_are_whole_and_of_their_size():
    reader = Reader(full("word", picture()).html())
    data = base64.b64decode(reader.values("src")[0].partition(",")[2], validate=True)
    assert data.startswith(b"\x89PNG")
    assert b"tEXt" not in data
    assert (reader.values("width"), reader.values("height")) == (["192"], ["96"])


def test_the_same_input_gives_the_same_bytes(tmp_path):
    for draw in (lambda: draw_confusion(np.eye(5)), picture):
        figure = draw()
        texts = {full("word", drawn).html() for drawn in (draw(), figure, figure)}
        assert len(texts) == 1
    for path in (tmp_path / "a.html", str(tmp_path / "b.html")):
        full("word", picture()).write(path)
        assert Path(path).read_bytes() == next(iter(texts)).encode()


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    place = tmp_path / "new" / "report.html"
    Page("first").write(place)
    before = place.read_bytes()

    def fail(partial, target):
        assert partial.parent == place.parent
        raise OSError("full")

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", fail)
        with refuses("full", file=place):
            Page("second").write(place)
    assert place.read_bytes() == before
    Page("second").write(place)
    assert place.read_bytes() != before
    assert [path.name for path in place.parent.iterdir()] == ["report.html"]
