"""Copy measured results into README and docs: `python benchmarks/tables.py`, or `--check` to list differences.

A page has the lines `<!-- table: NAME -->` and `<!-- /table -->`; the text between them is written here from
benchmarks/results.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import tables_images
import tables_jets
import tables_lightcurves
import tables_spins
import tables_text
from measure import ROOT, Row
from table import figure as exactly
from table import markdown, rows

MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def milliseconds(value: float) -> str:
    """Format with three digits, never with an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def core() -> str:
    """Table of the results of the core, with their thresholds."""
    found = rows("core")
    wanted = {
        "attention_cpu.overhead": ("`attend` over raw SDPA on the CPU, worst of {cells} cells", "{value} %", "5 %"),
        "attention_gpu.overhead": (
            "`attend` over raw SDPA and FlexAttention, worst of {cells} cells",
            "{value} %",
            "5 %",
        ),
        "attention_gpu.latency_overhead": (
            "the same for one call on an idle GPU, worst of {cells} cells",
            "{value} %",
            "",
        ),
        "window_cpu.16k.ratio_dense": (
            "window at 16k tokens, training, against SDPA with a dense mask",
            "{value} x",
            "",
        ),
        "window_cpu.16k.ratio_full": ("the same against SDPA over all pairs", "{value} x", ""),
        "gpu_tests.passed": ("tests on a GPU ({failed} failed)", "{value}", ""),
    }
    lines = []
    for name, (text, figure, bar) in wanted.items():
        row = found[name]
        lines.append(
            [text.format(**row), figure.format(**row), bar, row["hardware"].split(",")[0], f"`{row['command']}`"]
        )
    return markdown(["", "measured", "at most", "hardware", "command"], lines)


def run() -> str:
    """Table of the results of training, with their thresholds."""
    found = rows("run") | rows("text-speed")
    wanted = {
        "gpt_char_cpu.val_loss": (
            "GPT on characters, tiny Shakespeare, 2,000 steps on a CPU: validation loss",
            "≤ 1.88",
        ),
        "gpt_char_gpu.val_loss": ("larger GPT on characters, 5,000 steps on a GPU: best validation loss", "≤ 1.47"),
        "train_cpu.ratio_plain": ("training speed over a plain PyTorch loop, CPU", "≥ 0.97"),
        "engine_cpu.overhead": ("overhead of the engine over a bare step, 10 M parameters, CPU", "≤ 3 %"),
        "engine_gpu.overhead": ("the same on a GPU, compiled, with CUDA graphs", "≤ 3 %"),
        "gpt124m_train.tokens_per_s": ("GPT of 124 M parameters, 64 x 1024 tokens a step", ""),
        "gpt124m_train.ceiling_share": ("the same, as a share of the speed of matrix products alone", ""),
    }
    lines = [
        [text, figure(found[name]), bar, found[name]["hardware"].split(",")[0], f"`{found[name]['command']}`"]
        for name, (text, bar) in wanted.items()
        if name in found
    ]
    return markdown(["", "measured", "bar", "hardware", "command"], lines)


def peers() -> str:
    """Table of one result from each field, beside the reference package."""
    forest = rows("lightcurves").get("asas.forest_period.macro_f1")
    rival = f" (forest with them: {forest['value']:.3f}; bar: without)" if forest else ""
    wanted = {
        ("text-speed", "gpt124m_train.ratio_nanogpt"): ("GPT of 124 M, training step, over nanoGPT compiled", "≥ 1.05"),
        ("text-speed", "decode_b1.ratio_hf"): (
            "the same GPT, decoding one sequence, over Hugging Face",
            "≥ 10",
        ),
        ("text", "multi30k_en_de.test2016.bleu_tok"): ("Multi30k, English to German, BLEU", "≥ 41.02"),
        ("jets-speed", "part_train_gpu.ratio_official"): ("Particle Transformer, training step, over weaver", "≥ 4"),
        ("jets-loading", "root_loading.ratio_weaver"): ("ROOT file to batches, over weaver", "≥ 2"),
        ("lightcurves", "asas.folded.macro_f1"): (f"classes of ASAS stars with periods, macro F1{rival}", "≥ 0.722"),
        ("images-speed", "vit_b16_train.ratio_timm"): ("ViT-B/16, training step, over timm compiled", "≥ 1.05"),
    }
    lines = []
    for (file, name), (text, bar) in wanted.items():
        if row := rows(file).get(name):
            lines.append([text, figure(row), bar, row["hardware"].split(",")[0], f"`{row['command']}`"])
    return markdown(["", "measured", "bar", "hardware", "command"], lines)


def cluster() -> str:
    """Table of the results of clusters."""
    found = rows("cluster")
    wanted = {
        "cluster.faults": "faults on a Slurm of two nodes that end like an undisturbed run",
        "cluster.predict_kills": "kills of predictions in shards after which the table has the same bytes",
        "cluster.save_memory_ratio": "highest memory during a save with FSDP2, first of two ranks over the second",
        "cluster.save_memory_share": "memory that a save adds on the first rank",
    }
    lines = [
        [text, figure(found[name]), found[name]["hardware"].split(",")[0], f"`{found[name]['command']}`"]
        for name, text in wanted.items()
        if name in found
    ]
    return markdown(["", "measured", "hardware", "command"], lines)


def figure(row: Row) -> str:
    """Value with its unit, and the spread over several seeds."""
    value = f"{row['value']:,.0f}" if row["value"] >= 1000 else f"{row['value']:.4g}"
    unit = {"share": "", "nats": "", "x": " x"}.get(row["unit"], f" {row['unit']}")
    if row["seeds"] > 1:
        return f"{value} ± {row['spread']:.2g} ({row['seeds']} seeds)"
    return value + unit


def ising() -> str:
    """Table of three models on the phase transition."""
    found = rows("run")
    names = {"vit": "transformer", "cnn": "convolutional network", "lstm": "LSTM"}
    lines = []
    for kind, name in names.items():
        share, error = found[f"ising.{kind}.accuracy"], found[f"ising.{kind}.tc_error"]
        places = ", ".join(f"{value:.4f}" for value in error["tc"])
        cells = [name, f"{share['parameters']:,}", f"{100 * share['value']:.2f} %", places]
        lines.append([*cells, f"{error['value']:.4f} ± {error['spread']:.4f}"])
    return markdown(
        ["", "parameters", "accuracy on new chains", "crossing, three seeds", "difference from 2.269185"], lines
    )


# that recipes point into
FILES = (
    "run",
    "text",
    "text-language",
    "text-why",
    "text-pretraining",
    "jets",
    "images",
    "images-insight",
    "captions",
    "lightcurves",
    "spins",
)


def calibration() -> str:
    """Table of calibration errors before and after `calibrate`."""
    found = rows("calibration")
    wanted = {
        "jets.error": "ten classes of jets: calibration error",
        "jets.loss": "loss on the jets, nats",
        "redshift.coverage68": "redshifts: share of true values in the central 68 %",
        "redshift.coverage95": "the same in the central 95 %",
        "redshift.loss": "loss on the redshifts, nats",
    }
    lines = [
        [name, *(exactly(found.get(f"calibration.{key}.{when}"), 3) for when in ("before", "after"))]
        for key, name in wanted.items()
    ]
    return markdown(["on held-out samples", "as trained", "calibrated"], lines)


def measured() -> str:
    """Results that recipes refer to, as `sciformer recipes` shows them."""
    keys = ("value", "unit", "spread", "seeds", "hardware")
    found = {name: row for file in FILES for name, row in rows(file).items()}
    kept = {name: {key: row[key] for key in keys} for name, row in sorted(found.items())}
    return json.dumps(kept, indent=1) + "\n"


MEASURED = ROOT / "src" / "sciformer" / "recipe" / "measured.json"


def kernels(tag: str) -> Callable[[], str]:
    """Cells of the kernel benchmark on one device."""

    def table() -> str:
        found = {key: row for key, row in rows("core").items() if re.match(rf"attention_{tag}\.\w+\.\d+k", key)}
        latency = any(key.endswith("latency") for key in found)
        head = ["pattern, tokens", "forward ms", "ratio", "training ms", "ratio", "MiB"]
        lines = []
        for size in sorted({int(key.split(".")[2][:-1]) for key in found}):
            for pattern in ("full", "causal", "window"):
                forward, training = (found[f"attention_{tag}.{pattern}.{size}k.{d}"] for d in ("forward", "training"))
                line = [f"{pattern}, {size}k"]
                for row in (forward, training):
                    line += [milliseconds(row["value"]), f"{row['ratio_raw']:.3f}"]
                raw = f" / {training['raw_MiB']:.0f}" if "raw_MiB" in training else ""
                line += [f"{training['MiB']:.0f}{raw}"]
                if latency:
                    one = found.get(f"attention_{tag}.{pattern}.{size}k.latency")
                    line += [milliseconds(one["value"]), f"{one['ratio_raw']:.3f}"] if one else ["", ""]
                lines.append(line)
        return markdown(head + (["latency ms", "ratio"] if latency else []), lines)

    return table


TABLES: dict[str, Callable[[], str]] = {
    "core": core,
    "run": run,
    "peers": peers,
    "ising": ising,
    "wavefunction": tables_spins.wavefunction,
    "wavefunction_checks": tables_spins.checks,
    "ising_bc": tables_spins.ceilings,
    "translation": tables_text.translation,
    "ladder": tables_text.ladder,
    "speed": tables_text.speed,
    "language": tables_text.language,
    "memory": tables_text.memory,
    "pronouns": tables_text.pronouns,
    "polarity": tables_text.polarity,
    "tagging": tables_text.tagging,
    "valid_tags": tables_text.valid_tags,
    "jets_pythia": tables_jets.models("pythia"),
    "jets_builtin": tables_jets.models("builtin"),
    "jets_transfer": tables_jets.transfer,
    "jets_tops": tables_jets.tops,
    "jets_speed": tables_jets.speed,
    "asas": tables_lightcurves.asas,
    "asas_confusion": tables_lightcurves.asas_confusion,
    "fewshot": tables_lightcurves.fewshot,
    "new_curves": tables_lightcurves.new,
    "curves": tables_lightcurves.curves,
    "streams": tables_lightcurves.streams,
    "complete_streams": tables_lightcurves.complete_streams,
    "question_streams": tables_lightcurves.question_streams,
    "ragged": tables_lightcurves.ragged,
    "digits": tables_images.digits,
    "few_labels": tables_images.few_labels,
    "galaxies": tables_images.galaxies,
    "lenses": tables_images.lenses,
    "insight": tables_images.insight,
    "captions": tables_images.captions,
    "contrast": tables_images.contrast,
    "probes": tables_images.probes,
    "drawn_scenes": tables_images.drawn_scenes,
    "drawn_scenes_cpu": tables_images.drawn_scenes_cpu,
    "drawn_cost": tables_images.drawn_cost,
    "drawn_others": tables_images.drawn_others,
    "calibration": calibration,
    "cluster": cluster,
    "emoji": tables_images.emoji,
    "images_speed": tables_images.speed,
    "attention_cpu": kernels("cpu"),
    "attention_gpu": kernels("gpu"),
}


def pages() -> list[Path]:
    """All pages that may hold a table."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str) -> str:
    """Page with its tables written anew."""
    return MARKED.sub(lambda match: match[1] + TABLES[match[2]]() + match[3], text)


def main() -> int:
    stale = [page for page in pages() if filled(page.read_text("utf-8")) != page.read_text("utf-8")]
    if MEASURED.read_text("utf-8") != measured():
        stale.append(MEASURED)
    if "--check" not in sys.argv[1:]:
        if MEASURED in stale:
            MEASURED.write_text(measured(), "utf-8")
        for page in stale:
            if page != MEASURED:
                page.write_text(filled(page.read_text("utf-8")), "utf-8")
    for page in stale:
        print(
            f"{page.relative_to(ROOT)}: {'differs from' if '--check' in sys.argv[1:] else 'rewritten from'} the results"
        )
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
