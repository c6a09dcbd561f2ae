"""Tables of text, for `tables.py`."""

from __future__ import annotations

import statistics

from measure import Row
from table import UNKNOWN, figure, markdown, rows


def bleu(row: Row) -> str:
    """Score with its spread over several seeds."""
    return f"{row['value']:.1f}" + (f" ± {row['spread']:.1f}" if row["seeds"] > 1 else "")


def translation() -> str:
    """Table of Multi30k, English to German."""
    found = rows("text")
    forms = {"bleu_tok": "tokenised, lower case", "sacrebleu": "raw, cased"}
    lines = []
    for form, name in forms.items():
        row = found[f"multi30k_en_de.test2016.{form}"]
        parts = [found[f"multi30k_en_de.{part}.{form}"] for part in ("valid", "test2016", "test2017")]
        cost = [f"{row['parameters'] / 1e6:.1f} M", f"{statistics.mean(row['flops']) / 1e15:.1f}"]
        signature = row["signature"].replace("|", "\\|")  # or it would end the cell
        lines.append([name, *map(bleu, parts), *cost, f"`{signature}`"])
        bars = [f"{part['bar']:.2f}" if "bar" in part else "" for part in parts]
        if any(bars):
            lines.append(["published Transformer-Tiny", *bars, "", "", ""])
    head = ["", "validation", "Test2016", "Test2017", "parameters", "training, 10^15 FLOPs", "sacreBLEU"]
    return markdown(head, lines)


RUNGS = {
    "lstm": "LSTM, no attention",
    "gru": "GRU, no attention",
    "content": "GRU, content",
    "additive": "GRU, additive",
    "location": "GRU, location",
    "general": "GRU, general",
    "dot": "GRU, dot",
    "scaled_dot": "GRU, scaled dot",
    "gpt_prompt": "decoder alone, with a prompt",
    "transformer": "Transformer",
}


def ladder() -> str:
    """Table of Multi30k, German to English, by length of the source.

    Models are ordered from the LSTM to the Transformer.
    """
    found = rows("text")
    kept = {name: found[f"ladder.{rung}.bleu"] for rung, name in RUNGS.items() if f"ladder.{rung}.bleu" in found}
    lengths = list(next(iter(kept.values()))["by_length"])
    lines = []
    for name, row in kept.items():
        by_length = [f"{row['by_length'][key]:.1f}" for key in lengths]
        anchor = f"{row['anchor']:.1f}" if "anchor" in row else ""
        cost = [f"{row['parameters'] / 1e6:.1f} M", f"{row['flops'] / 1e15:.2f}"]
        cost.append(f"{statistics.mean(row['training_s']) / 60:.1f}")
        lines.append([name, bleu(row), str(row["seeds"]), *by_length, *cost, anchor])
    words = [f"{key.removesuffix('-99')}{' or more' if key.endswith('-99') else ''} words" for key in lengths]
    head = ["", "BLEU", "seeds", *words, "parameters", "training, 10^15 FLOPs", "minutes", "teaching code"]
    return markdown(head, lines)


SPEEDS = {
    "gpt124m_train.ratio_nanogpt": ("training a 124 M GPT, over nanoGPT's step, compiled (GPU)", "≥ 1.05"),
    "gpt124m_train.ratio_hf": ("the same over `GPT2LMHeadModel`, compiled (GPU)", "≥ 1.3"),
    "decode_b1.ratio_hf": ("decoding 256 tokens with it, one text, over `generate` (GPU)", "≥ 10"),
    "decode_b32.ratio_hf": ("the same, 32 texts (GPU)", "≥ 4"),
    "gpt_train_cpu.ratio_nanogpt": ("training a GPT of 4 x 128, over nanoGPT's loop (CPU)", "≥ 0.97"),
    "gpt_train_cpu.large.ratio_nanogpt": ("the same of 6 x 384 (CPU)", ""),
    "decode_cpu.ratio_hf": ("decoding 64 sampled tokens with a 124 M GPT, over `generate` (CPU)", "≥ 0.97"),
    "decode_cpu.greedy.ratio_hf": ("the same, greedy decoding (CPU)", ""),
}


def speed() -> str:
    """Table of speeds against nanoGPT and Hugging Face; missing results are marked."""
    found = rows("text-speed")
    lines = []
    for name, (text, bar) in SPEEDS.items():
        row = found.get(name)
        if row is None:
            lines.append([text, "not measured yet", bar, ""])
        else:
            low, high = row["spread"]
            lines.append([text, f"{row['value']:.2f} ({low:.2f} to {high:.2f})", bar, row["hardware"].split(",")[0]])
    return markdown(["", "times as fast (10 to 90 %)", "target", "hardware"], lines)


def language() -> str:
    """Table of perplexities on WikiText-2."""
    found = rows("text-language")
    names = {"gpt": "`text/wikitext-gpt`", "lstm": "`text/wikitext-lstm`", "ngram": "five-grams, modified Kneser-Ney"}
    lines = []
    for name, words in names.items():
        row = found.get(f"wikitext2.{name}.perplexity")
        spread = f" ± {row['spread']:.1f}" if row and row["spread"] else ""
        lines.append(
            [words, f"{row['value']:.1f}{spread}" if row else "not measured yet", str(row["seeds"]) if row else ""]
        )
    lines.append(["AWD-LSTM, published (arXiv 1708.02182)", "65.8", ""])
    return markdown(["", "perplexity", "seeds"], lines)


MEMORIES = {
    "rnn": "RNN",
    "gru": "GRU",
    "lstm": "LSTM",
    "attention": "RNN with attention",
    "transformer": "Transformer",
}
LAGS = (2, 8, 32, 128, 512)


def memory() -> str:
    """Table of recall after noise: accuracy, and gradient at the symbol."""
    found = rows("text-why")
    lines = []
    for model, name in MEMORIES.items():
        cells = [found.get(f"memory.{model}.{lag}.accuracy") for lag in LAGS]
        reach = [f"{row[f'gradient_{when}']:.0e}" if row else UNKNOWN for when in WHEN for row in cells[-1:]]
        lines.append([name, *(share(row) for row in cells), *reach])
    head = ["", *(f"lag {lag}" for lag in LAGS), "gradient at 512, untrained", "trained"]
    return markdown(head, lines)


WHEN = ("before", "after")


def share(row: Row | None) -> str:
    """Share in percent with its spread over seeds."""
    return figure(row, 0, 100, " %")


def pronouns() -> str:
    """Table of the accuracy of «it» by the distance of its noun."""
    found = rows("text-why")
    names = {"lstm": "LSTM", "attention": "LSTM with attention", "transformer": "Transformer"}
    ends = sorted({row["distance"] for row in found.values() if "distance" in row})
    lines = []
    for model, name in names.items():
        row = found.get(f"pronoun.{model}.accuracy")
        cells = [share(found.get(f"pronoun.{model}.{end}.accuracy")) for end in ends]
        written = f"{100 * statistics.mean(row['written']):.0f} %" if row else UNKNOWN
        lines.append([name, f"{row['parameters']:,}" if row else "", share(row), *cells, written])
    head = ["", "parameters", "all distances", *(f"{end} words" for end in ends), "in its own translation"]
    return markdown(head, lines)


RIVALS = {
    "pretrained": "BERT-small, pretrained",
    "scratch": "BERT-small, from random weights",
    "bow": "bag of words",
    "bilstm": "bidirectional LSTM",
    "cnn": "CNN",
}


def percent(row: Row | None) -> str:
    """Value in percent with its spread."""
    return figure(row, 1)


def polarity() -> str:
    """Table of sentence polarity by the number of labels."""
    found = rows("text-pretraining")
    lines = []
    for rival, name in RIVALS.items():
        cells = [found.get(f"polarity.{size}.{rival}.accuracy") for size in ("100", "1000", "all")]
        size = f"{cells[-1]['parameters'] / 1e6:.1f} M" if cells[-1] else ""
        lines.append([name, *map(percent, cells), size])
    return markdown(["accuracy, %", "100 labels", "1,000 labels", "all labels", "parameters"], lines)


def valid_tags() -> str:
    """Table of entities of WNUT-17, with and without valid sequences of tags."""
    found = rows("text-tagging")
    names = {"words": "most probable tag of each word", "valid": "most probable valid sequence"}
    scores = {
        "f1": "F1, %",
        "precision": "precision, %",
        "recall": "recall, %",
        "broken": "sentences with invalid tags, %",
    }
    return markdown(
        ["WNUT-17, test part", *scores.values()],
        [
            [name, *(percent(found.get(f"wnut17_tags.{key}.{score}")) for score in scores)]
            for key, name in names.items()
        ],
    )


def tagging() -> str:
    """Table of entities of WNUT-17."""
    found = rows("text-pretraining")
    names = {"wnut17.f1": "BERT-small, pretrained", "wnut17.bilstm.f1": "bidirectional LSTM"}
    return markdown(
        ["WNUT-17, test part", "F1 of entities, %"],
        [[name, percent(found.get(key))] for key, name in names.items()],
    )
