"""Report as one HTML file without scripts, fonts or pictures from elsewhere.

    page = Page("Ising, 32 x 32", "run 7")
    page.section("History", note="on one core")
    page.figure(draw_history(records, ["loss"]), "The loss falls.", alt="Loss against step")
    with page.details("Recipe"):
        page.code(recipe)
    page.write("report.html")

Every string is escaped, so names from data files cannot inject HTML. The same calls give the same bytes.
"""

from __future__ import annotations

import base64
import html
import io
import numbers
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ...errors import UserError
from ...files.atomic import atomic_write, make_folder, write_text
from ...metrics.bootstrap import TOO_FEW

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
DOTS_PER_INCH = 160  # resolution of figures
CSS_PIXELS_PER_INCH = 96
MAX_SECTIONS_WITHOUT_CONTENTS = 4  # with more sections there is a table of contents
# Not allowed in HTML: control characters (except tab and newlines) and lone surrogates (from file names).
UNPRINTABLE_PATTERN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
NUMBER_PATTERN = re.compile(
    r"\s*[-+−±<>≤≥≈~]?\s*\.?\d[\d.,eE+\-−±()%×^\s]*(to -?[\d.,e+\-]+)?|\s*[-+−]?(nan|inf|∞)\s*|[-–—]?"
)

STYLESHEET = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2126; --soft: #5b6570; --line: #d9dee3; --tint: #f4f6f8;
  --link: #08519c; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #14181c; --ink: #e3e7ea; --soft: #9aa5af; --line: #333b43; --tint: #1d2329; --link: #8ec1ee; } }
* { box-sizing: border-box; }
html { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%; }
body { max-width: 46rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 0.5rem; }
p { margin: 0.6rem 0; white-space: pre-line; }
a { color: var(--link); }
.subtitle, .note, caption, figcaption, dt { color: var(--soft); }
.subtitle { font-size: 1.05rem; margin: 0.4rem 0 0; }
.note { margin-top: 0; font-size: 0.9rem; }
nav { margin: 1.75rem 0 0; padding: 0.75rem 1rem; background: var(--tint); border-radius: 6px; font-size: 0.95rem; }
nav ol { margin: 0; padding-left: 1.4rem; columns: 15rem; }
section { margin-top: 2.25rem; padding-top: 1.25rem; border-top: 1px solid var(--line); }
figure { margin: 1.25rem 0; }
.card { background: #fff; border: 1px solid var(--line); border-radius: 6px; padding: 0.5rem; text-align: center; }
img { max-width: 100%; height: auto; vertical-align: middle; }
figcaption, caption { font-size: 0.875rem; text-align: left; }
figcaption { margin-top: 0.4rem; }
caption { padding-bottom: 0.4rem; max-width: min(43rem, 100vw - 3rem); }
.scroll { overflow-x: auto; margin: 1.25rem min(0px, 24.5rem - 50vw) 1.25rem 0; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; min-width: 50%; }
th, td { padding: 0.3rem 1rem 0.3rem 0; text-align: left; vertical-align: top; font-weight: normal;
  border-bottom: 1px solid var(--line); }
thead th { font-weight: 600; border-bottom: 1px solid var(--soft); vertical-align: bottom; }
.number { text-align: right; white-space: nowrap; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: 0.2rem 1.25rem; margin: 1rem 0;
  font-size: 0.95rem; }
dd { margin: 0; min-width: 0; }
pre { overflow-x: auto; margin: 1rem 0; padding: 0.75rem 1rem; background: var(--tint); border-radius: 6px;
  font: 0.82rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; tab-size: 4; }
details { margin: 1rem 0; }
summary { cursor: pointer; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.4rem; } }
@media print {
  body { max-width: none; padding: 0; }
  html { font-size: 10.5pt; }
  figure, tr, dl > * { break-inside: avoid; }
  h2, caption, summary { break-after: avoid; }
  pre { white-space: pre-wrap; }
  .scroll { overflow: visible; }
  details::details-content { content-visibility: visible; block-size: auto; } }
"""


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a file atomically."""
    make_folder(path.parent)
    with atomic_write(path) as partial:
        figure.savefig(partial, format=path.suffix[1:], dpi=DOTS_PER_INCH, facecolor="white")


class Page:
    """HTML page, built from top to bottom; sections are the only headings."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title, self.subtitle = title, subtitle
        self._sections: list[str] = []
        self._parts: list[str] = []
        self._folds = 0

    def section(self, title: str, note: str | None = None) -> None:
        """Start a section with a heading."""
        if self._folds:
            hint = "End the `with page.details` first."
            raise UserError(f"the section {title!r} cannot start inside details", hint=hint)
        if self._sections:
            self._parts.append("</section>")
        self._sections.append(title)
        n = len(self._sections)
        self._parts.append(f'<section aria-labelledby="section-{n}">\n<h2 id="section-{n}">{_escape_html(title)}</h2>')
        if note is not None:
            self._parts.append(f'<p class="note">{_escape_html(note)}</p>')

    def text(self, text: str) -> None:
        """Add paragraphs, separated by empty lines in the text."""
        self._parts += [f"<p>{_escape_html(part.strip())}</p>" for part in re.split(r"\n\s*\n", text) if part.strip()]

    def table(self, head: Sequence[object], rows: Sequence[Sequence[object]], caption: str) -> None:
        """Add a table: row names first, numbers right-aligned, floats with four digits."""
        for row in rows:
            if len(row) != len(head):
                raise UserError(f"a row has {len(row)} cells, but the table has {len(head)} columns: {list(row)!r}")
        cells = [[_format_value(cell) for cell in row] for row in rows]
        right = [bool(cells) and all(map(_is_numeric, column)) for column in zip(*cells)] or [False] * len(head)
        marks = [' class="number"' if number else "" for number in right]
        names = map(_format_value, head)
        top = "".join(f'<th scope="col"{mark}>{_escape_html(name)}</th>' for mark, name in zip(marks, names))
        lines = []
        for first, *others in cells:
            values = "".join(f"<td{mark}>{_escape_html(cell)}</td>" for mark, cell in zip(marks[1:], others))
            lines.append(f'<tr><th scope="row"{marks[0]}>{_escape_html(first)}</th>{values}</tr>\n')
        self._parts.append(
            f'<div class="scroll" role="region" aria-label="{_escape_html(caption)}" tabindex="0"><table>\n'
            f"<caption>{_escape_html(caption)}</caption>\n<thead><tr>{top}</tr></thead>\n"
            f"<tbody>\n{''.join(lines)}</tbody>\n</table></div>"
        )

    def figure(self, figure: Figure, caption: str, alt: str) -> None:
        """Add a figure on a white card; `alt` describes it to screen readers."""
        if not alt.strip():
            raise UserError(f"the figure has an empty description: alt={alt!r}", hint="Describe what it shows.")
        picture = _render_png(figure)
        sides = (int.from_bytes(picture[i : i + 4], "big") for i in (16, 20))  # width and height in the PNG header
        width, height = (round(side * CSS_PIXELS_PER_INCH / DOTS_PER_INCH) for side in sides)
        self._parts.append(
            f'<figure>\n<div class="card"><img width="{width}" height="{height}" alt="{_escape_html(alt)}" '
            f'src="data:image/png;base64,{base64.b64encode(picture).decode()}"></div>\n'
            f"<figcaption>{_escape_html(caption)}</figcaption>\n</figure>"
        )

    def facts(self, facts: Mapping[str, object]) -> None:
        """Add a table of two columns: names and values."""
        if not facts:
            raise UserError("the list of facts is empty")
        said = {name: _format_value(value) for name, value in facts.items()}
        pairs = [f"<dt>{_escape_html(name)}</dt><dd>{_escape_html(value)}</dd>\n" for name, value in said.items()]
        self._parts.append(f"<dl>\n{''.join(pairs)}</dl>")

    def code(self, text: str) -> None:
        """Add preformatted text."""
        self._parts.append(f'<pre tabindex="0"><code>{_escape_html(text)}</code></pre>')

    @contextmanager
    def details(self, summary: str) -> Iterator[None]:
        """Context manager: fold all added contents under a summary line."""
        self._parts.append(f"<details>\n<summary>{_escape_html(summary)}</summary>")
        self._folds += 1
        try:
            yield
        finally:
            self._folds -= 1
            self._parts.append("</details>")

    def html(self) -> str:
        assert not self._folds, "details are still open"
        title = _escape_html(self.title)
        header = f"<header>\n<h1>{title}</h1>\n"
        if self.subtitle:
            header += f'<p class="subtitle">{_escape_html(self.subtitle)}</p>\n'
        if len(self._sections) > MAX_SECTIONS_WITHOUT_CONTENTS:
            names = map(_escape_html, self._sections)
            links = [f'<li><a href="#section-{n}">{name}</a></li>\n' for n, name in enumerate(names, 1)]
            header += f'<nav aria-label="Contents"><ol>\n{"".join(links)}</ol></nav>\n'
        end = "</section>\n" if self._sections else ""
        body = "".join(f"{part}\n" for part in self._parts) + end
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLESHEET}</style>\n</head>\n"
            f"<body>\n{header}</header>\n<main>\n{body}</main>\n</body>\n</html>\n"
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file atomically."""
        write_text(Path(path), self.html())


def _render_png(figure: Figure) -> bytes:
    """Render a figure as PNG.

    Two rounds of layout suffice, whereas `savefig` would draw everything twice.
    """
    canvas, kept, engine = FigureCanvasAgg(figure), io.BytesIO(), figure.get_layout_engine()
    before = {"dpi": figure.dpi, "facecolor": figure.get_facecolor()}
    for looks in (before, {"dpi": DOTS_PER_INCH, "facecolor": "white"}):
        figure.set(**looks)
        if engine is not None and figure.axes:
            with suppress(ValueError):  # Matplotlib draws without layout if it fails
                engine.execute(figure)
    figure.set_layout_engine("none")
    canvas.print_png(kept, metadata={"Software": None})
    figure.set(layout_engine=engine, **before)
    return kept.getvalue()


def _escape_html(text: str) -> str:
    return html.escape(UNPRINTABLE_PATTERN.sub("\ufffd", str(text)), quote=True)


def _is_numeric(cell: str) -> bool:
    """Whether a cell is a number, empty, or a mark of a missing number."""
    return cell == TOO_FEW or NUMBER_PATTERN.fullmatch(cell) is not None


def _format_value(value: object) -> str:
    """Format a cell: four digits for floats, empty for None."""
    if value is None:
        return ""
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, numbers.Integral)):
        return f"{value if isinstance(value, float) else float(value):.4g}"  # AtLeast formats itself as a bound
    return str(value)
