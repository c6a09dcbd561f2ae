"""Tables of jets, for `tables.py`."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from measure import Row
from table import UNKNOWN, figure, markdown, rows

MODELS = {
    "pfn": "PFN",
    "pcnn": "P-CNN",
    "particlenet": "ParticleNet",
    "pct": "PCT",
    "lorentznet": "LorentzNet",
    "part_plain": "ParT, plain",
    "part": "ParT",
}
REJECTIONS = {"Hbb": "Hbb 50 %", "H4q": "H4q 50 %", "Hqql": "Hqql 99 %", "Tbqq": "Tbqq 50 %", "Tbl": "Tbl 99.5 %"}


def accuracy(row: Row | None) -> str:
    """Share with its spread over seeds."""
    return figure(row, 4)


def rejection(row: Row, kind: str) -> str:
    """QCD rejection at a given efficiency of a class; «≥» marks a lower bound."""
    for name, found in row["rejections"].items():
        if name.startswith("rejection_") and name.endswith(f"_{kind}"):
            return ("≥ " if found["bound"] else "") + f"{found['median']:,.0f}"
    return ""


def models(part: str) -> Callable[[], str]:
    """Table of seven models on the same jets."""

    def table() -> str:
        found = rows("jets")
        lines = []
        for model, name in MODELS.items():
            row, area = (found.get(f"{part}10.{model}.{metric}") for metric in ("accuracy", "auc"))
            if row is None or area is None:
                lines.append([name, UNKNOWN, *[""] * (5 + len(REJECTIONS))])
                continue
            cost = [f"{row['parameters'] / 1e3:,.0f} k", f"{row['flops'] / 1e15:.2f}"]
            cost.append(f"{statistics.mean(row['training_s']):.0f}")
            known = f"{row['published']:.3f}" if row["published"] else ""
            cells = [accuracy(row), accuracy(area), *(rejection(row, kind) for kind in REJECTIONS)]
            lines.append([name, *cells, *cost, known])
        head = ["", "accuracy", "AUC", *REJECTIONS.values(), "parameters", "training, 10^15 FLOPs", "s"]
        return markdown([*head, "JetClass"], lines)

    return table


WAYS = {
    ("part", "scratch"): "ParT, random weights",
    ("part", "masked"): "ParT, pretrained without labels",
    ("part", "supervised"): "ParT, pretrained with labels",
    ("particlenet", "scratch"): "ParticleNet, random weights",
    ("particlenet", "supervised"): "ParticleNet, pretrained with labels",
    ("particlenet", "official"): "ParticleNet, published weights (JetClass)",
}


def transfer() -> str:
    """Table of pretraining, by the number of labelled jets."""
    found, lines = rows("jets"), []
    for (model, way), name in WAYS.items():
        row = found.get(f"transfer.0.{model}.{way}.accuracy")
        cells = ["" if row is None else accuracy(row)]
        cells += [accuracy(found.get(f"transfer.{size}.{model}.{way}.accuracy")) for size in ("100", "1000", "all")]
        lines.append([name, *cells])
    return markdown(["accuracy", "none", "100 jets", "1,000 jets", "all"], lines)


def tops() -> str:
    """Table of tops against QCD, from random weights and pretrained."""
    found, lines = rows("jets"), []
    for way, name in {"scratch": "ParT, random weights", "pretrained": "ParT, pretrained with labels"}.items():
        row = found.get(f"toptag.{way}.rejection30")
        if row is None:
            lines.append([name, UNKNOWN, "", "", ""])
            continue
        seen = row["rejections"]
        cells = [
            ("≥ " if seen[key]["bound"] else "") + f"{seen[key]['median']:,.0f}"
            for key in ("rejection_30", "rejection_50")
        ]
        shares = [f"{statistics.mean(row[key]):.4f} ± {statistics.stdev(row[key]):.4f}" for key in ("accuracy", "auc")]
        lines.append([name, *cells, *shares])
    return markdown(["", "rejection at 30 %", "at 50 %", "accuracy", "AUC"], lines)


SPEEDS = {
    "part_train_gpu.ratio_official": ("training step of 512 jets, over the official model (GPU)", "≥ 4"),
    "part_train_gpu.ratio_official_p10": ("the same, over the fastest tenth of the official steps (GPU)", ""),
    "part_train_gpu.ratio_official_compiled": ("the same, over the official model compiled (GPU)", "> 1"),
    "part_train_gpu.memory_ratio": ("peak memory, as a share of the official model's (GPU)", "≤ 0.5"),
    "part_infer_gpu.ratio_official": ("probabilities of 512 jets, over the official model (GPU)", "≥ 4"),
    "part_train_cpu.ratio_official": ("training step of 64 jets, over the official model (CPU)", "≥ 1.2"),
    "root_loading.ratio_weaver": ("ROOT file to batches, over weaver's loader (2 cores)", "≥ 2"),
}


def speed() -> str:
    """Table of speeds against weaver-core; missing results are marked."""
    found = rows("jets-speed") | rows("jets-loading")
    lines = []
    for name, (text, bar) in SPEEDS.items():
        row = found.get(name)
        if row is None:
            lines.append([text, UNKNOWN, bar, ""])
        else:
            low, high = row["spread"]
            lines.append([text, f"{row['value']:.2f} ({low:.2f} to {high:.2f})", bar, row["hardware"].split(",")[0]])
    return markdown(["", "ratio (10 to 90 %)", "target", "hardware"], lines)
