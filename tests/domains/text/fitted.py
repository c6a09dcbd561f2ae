"""Tokens fitted to a few texts, and a recipe of pairs."""

from sciformer.domains.text.tokens import Text, as_table
from sciformer.recipe import Recipe

EN = ["two men", "a dog runs", "two dogs", "a man and a dog"] * 5
DE = ["zwei männer", "ein hund rennt", "zwei hunde", "ein mann und ein hund"] * 5


def fitted(unit="characters", texts=(), **options):
    """Text tokens that learned from these texts, or read their `tokenizer`."""
    tokens = Text(kind="text", unit=unit, **options)
    tokens.fit([as_table(list(texts))])
    return tokens


def pair_recipe(tmp_path, source, target):
    """A tiny translator of EN to DE, with these keys of its two streams."""
    for name, lines in (("en", EN), ("de", DE)):
        (tmp_path / f"train.{name}").write_text("\n".join(lines) + "\n")
    return Recipe.from_dict(
        {
            "data": {"kind": "parallel", "files": [str(tmp_path / "train.{}")], "columns": ["en", "de"]},
            "tokens": {
                "source": {"kind": "text", "column": "en", **source},
                "target": {"kind": "text", "column": "de", "begin": True, "end": True, **target},
            },
            "model": {"kind": "encoder_decoder", "dim": 8, "depth": 1, "heads": 2},
            "objective": {"kind": "translate"},
            "train": {"steps": 1, "batch": 4, "device": "cpu"},
        }
    )
