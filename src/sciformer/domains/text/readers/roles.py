"""Roles of the columns of a table of texts, by names and contents; header lines.

find_role("text", ["tweet_id", "Tweet", "Airline_Sentiment"])      ["Tweet"]
find_header([["headline", "outcome"], ["A long day", "a"], ...])   ["headline", "outcome"]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ....data.readers.part_names import name_words
from ....files.formats.delimited import is_number

NAMES = {
    "text": (
        "text sentence review content message tweet comment body phrase utterance title",
        "texts sentences reviews document headline description abstract summary post reply caption transcript snippet "
        "passage paragraph quote question query prompt narrative feedback remark answer email mail sms news article "
        "statement claim subject lyrics speech",
    ),
    "label": (
        "label labels class category sentiment polarity target intent topic rating tag",
        "classes categories gold outcome emotion genre stance verdict spam toxic toxicity hate annotation decision "
        "type diagnosis truth",
    ),
    "word": ("word words token tokens form", ""),
    "tag": ("tag tags label labels ner ner_tag ner_tags pos upos xpos entity entities", ""),
}
"""Usual names of a role: the first are preferred."""
PAIRS = (
    *(("premise", "hypothesis"), ("sentence1", "sentence2"), ("text1", "text2"), ("text_a", "text_b")),
    *(("question1", "question2"), ("question", "answer"), ("question", "passage"), ("question", "context")),
    *(("question", "sentence"), ("query", "document"), ("query", "passage"), ("sentence_a", "sentence_b")),
)
"""Names of two columns of texts that belong together."""
MIN_HEADER_ROWS = 4  # rows to recognise a header line by the other rows
MAX_NAME_WORDS = 3  # words of a column name
MIN_SHARE_OF_TEXTS = 0.8  # share of cells with several words in a column of texts


def find_role(role: str, names: Sequence[str]) -> list[str]:
    """Columns with a usual name for a role; several if the names are ambiguous."""
    lowered = {name: name.lower() for name in names}
    if exact := [name for name, low in lowered.items() if low == role]:
        return exact
    for usual in NAMES[role]:
        if hits := [name for name, low in lowered.items() if low in usual.split()]:
            return hits
    known = {word for usual in NAMES[role] for word in usual.split()}
    return [name for name in names if name_words(name)[-1].rstrip("0123456789") in known]


def find_header(rows: Sequence[Sequence[str]], given: Collection[str] = ()) -> list[str]:
    """Column names in the first row; empty if the first row is not a header line.

    A row is a header line if one of its cells is in `given`, or is a preferred name of a text or label column.
    Otherwise three conditions must hold: all cells are short; no cell occurs again in its column; and one cell is a
    usual name, a single word above texts, or any text above numbers.
    """
    cells = [cell.strip().lstrip("#").strip() for cell in rows[0]] if rows else []
    if not all(cells) or len(set(cells)) < len(cells):
        return []
    preferred, further = ({word for role in ("text", "label") for word in NAMES[role][tier].split()} for tier in (0, 1))
    lowered = {cell.lower() for cell in cells}
    if lowered & ({name.lower() for name in given} | preferred):
        return cells
    columns = [[row[place].strip() for row in rows[1:]] for place in range(len(cells))]
    short = all(len(cell.split()) <= MAX_NAME_WORDS and not is_number(cell) for cell in cells)
    if not short or any(cell in column for cell, column in zip(cells, columns)):
        return []
    titled = any(_is_title(cell, column) for cell, column in zip(cells, columns))
    unlike = titled and len(cells) > 1 and len(rows) >= MIN_HEADER_ROWS
    return cells if lowered & further or unlike else []


def _is_title(cell: str, column: Sequence[str]) -> bool:
    """Whether a cell looks like the title of the cells below: numbers or longer texts."""
    filled = [one for one in column if one]
    several = sum(" " in one for one in filled)
    return bool(filled) and (
        all(map(is_number, filled)) or (" " not in cell and several >= MIN_SHARE_OF_TEXTS * len(filled))
    )


@dataclass(frozen=True)
class Contents:
    """Contents of a column.

    words       mean number of words of a cell
    different   number of different values
    numbers     whether all cells are numbers
    count       number of cells
    """

    words: float
    different: int
    numbers: bool
    count: int

    @classmethod
    def of(cls, cells: Sequence[str]) -> Contents:
        """Count the words, the different values and the cells of a column."""
        filled = [cell for cell in cells if cell.strip()]
        words = sum(len(cell.split()) for cell in filled) / max(1, len(filled))
        return cls(words, len(set(cells)), bool(filled) and all(map(is_number, filled)), len(cells))


def find_texts(columns: dict[str, Contents]) -> list[str]:
    """Find columns of texts by their contents, sorted by falling number of words.

    Columns of texts have several words per cell, or at least many different values.
    """
    worded = [name for name, one in columns.items() if not one.numbers and one.words >= 2]
    worded = worded or [name for name, one in columns.items() if not one.numbers and 2 * one.different > one.count]
    return sorted(worded, key=lambda name: -columns[name].words)
