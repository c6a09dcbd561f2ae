"""Results whose code has changed since they were measured: `make stale`.

A row names its dependencies (`depends`): recipes, whose golden runs guard the results; or files and folders, if the
result is a speed. Each dependency has a digest from the time of the measurement: of the golden run of a recipe, or of
the code of a path, without comments and docstrings. A row is stale if a digest is different today.

    python benchmarks/stale.py             print stale rows, the changed dependencies, and the command to measure again
    python benchmarks/stale.py --fill      write `depends` into rows without it, and the golden runs of their recipes
    python benchmarks/stale.py --recorded-anew COMMIT      keep the scores of runs that agree to 1e-4 with COMMIT

Golden runs differ by rounding on another model of CPU. The last command is for the time after they were recorded anew
there: a row with the digest of a run in COMMIT gets the digest of today's run if both have the same batches, and agree
in losses and predictions.

The command `--fill` is for rows that are older than `depends`. Their speeds have no digest and count as stale. Their
scores are guarded by golden runs from the time when these were first recorded.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import re
import subprocess
import tokenize
from fnmatch import fnmatchcase
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden.json"
CODE = "src/sciformer/"
TRAINING = ("training", "models", "nn", "objectives/base.py", "data/batch.py", "data/collate.py", "data/sampler.py")
READING = ("files/formats", "data/fileset.py", "data/readers", "data/columns.py", "data/dataset.py")
TEXT = ("domains/text/tokens.py", "domains/text/layers.py", "objectives/next_token.py")
JETS = ("domains/jets/tokens.py", "domains/jets/layers.py", "domains/jets/features.py", "objectives/classify.py")

# Pattern of ids -> recipes (FIELD/NAME, with a slash and no suffix) and files or folders below src/sciformer, or paths
# from the root of the repository (benchmarks/...). The first pattern that fits counts.
DEPENDS: dict[str, tuple[str, ...]] = {
    "gpu_tests.*": ("", "tests/gpu"),
    "attention_*": ("nn/attention", "benchmarks/attention.py"),
    "window_cpu.*": ("nn/attention", "benchmarks/attention.py"),
    "gpt124m_*": (*TRAINING, *TEXT, "benchmarks/nanogpt.py"),
    "gpt_train_cpu.*": (*TRAINING, *TEXT, "benchmarks/nanogpt.py"),
    "decode_*": ("nn", "generation", "models/decoder.py", "models/network.py", "benchmarks/decoding.py"),
    "engine_*": (*TRAINING, *TEXT, "data/loader.py", "data/prepare.py", "data/dataset.py", "benchmarks/plain.py"),
    "train_cpu.*": (*TRAINING, *TEXT, "benchmarks/plain.py"),
    "part_*": (*TRAINING, *JETS, "benchmarks/jets_sides.py"),
    "vit_b16_train.*": (
        *TRAINING,
        "domains/images/tokens.py",
        "domains/images/layers.py",
        "benchmarks/images_sides.py",
    ),
    "ragged_*": (*TRAINING, "domains/lightcurves", "data/loader.py", "benchmarks/lightcurves_speed.py"),
    "root_loading.*": (*READING, "domains/jets/tokens.py", "benchmarks/jets_loading.py"),
    "image_loading.*": (*READING, "domains/images/reader", "domains/images/tokens.py", "benchmarks/images_loading.py"),
    "cluster.faults": ("cluster", "training", "tests/slurm"),
    "cluster.predict_kills": ("cluster/shards.py", "evaluation/predictions.py", "files", "benchmarks/shards.py"),
    "cluster.save_memory_*": ("training", "benchmarks/save_memory.py"),
    "fuzz.*": ("files", "data/readers", "interop", "recipe", "domains", "tests/fuzz"),
    "simulate_jets.*": ("domains/jets/simulate",),
    "simulate_lightcurves.*": ("domains/lightcurves/simulate",),
    "captions.transformer.*": ("images/caption-transformer",),
    "emoji.coca.*": ("images/coca", "evaluation/zero_shot.py", "benchmarks/emoji.py"),
    "emoji.*": ("benchmarks/emoji.py",),
    "captions.coca.*": ("images/coca",),
    "captions.labels.*": ("images/coca",),
    "captions.show_attend_tell.*": ("images/show-attend-tell",),
    "from_text*.ceiling*": ("domains/images/codes", "domains/images/scenes"),
    "from_text*.codes.*": ("images/from-text",),
    "from_text*.diffusion.*": ("images/from-text-diffusion",),
    "generate_*.codes.*": ("images/from-text",),
    "generate_*.diffusion.*": ("images/from-text-diffusion",),
    "generate_*": ("images/from-text", "images/from-text-diffusion"),
    "simulate_scenes.*": ("domains/images/scenes", "domains/images/simulate/scenes.py"),
    **dict.fromkeys(
        (f"era5.*.{rival}.rmse" for rival in ("persistence", "damped", "linear", "unet", "lstm")),
        ("benchmarks/fields.py",),
    ),
    "era5.*": (
        *("domains/atmosphere/tokens.py", "domains/atmosphere/layers.py", "domains/atmosphere/masks.py"),
        *("domains/atmosphere/reader", "objectives/masked.py", "benchmarks/fields.py"),
    ),
    "multistream.*": ("models/multistream.py", "nn/concatenation.py", "domains/lightcurves/simulate/transients.py"),
    "calibration.jets.*": ("jets/pfn",),
    "calibration.redshift.*": ("lightcurves/transformer",),
    "insight.shape_bias.vit": ("images/cues-vit",),
    "insight.shape_bias.cnn": ("images/cues-cnn",),
    "insight.*": ("images/digits-vit",),
    "insight_mnist.*": ("images/mnist-vit",),
    "mnist_fewshot.*": ("images/mnist-mae", "images/mnist-vit"),
    "galaxies.*.resnet18.*": ("images/galaxies-resnet",),
    "galaxies.*.linformer.*": ("images/galaxies-linformer",),
    "galaxies.*": ("images/galaxies",),
    "lenses.resnet18.*": ("images/lenses-resnet",),
    "lenses.*": ("images/lenses",),
    "*.part_plain.*": ("jets/part-plain",),
    "toptag.*": ("jets/part-kin",),
    "transfer.*.particlenet.*": ("jets/particlenet",),
    "transfer.*": ("jets/part", "jets/part-masked"),
    "asas.forest*": ("domains/lightcurves/tokens.py", "benchmarks/lightcurves_forest.py"),
    "asas_new.*.forest*": ("domains/lightcurves/periods.py", "benchmarks/lightcurves_forest.py"),
    "asas_new.*.before.*": ("lightcurves/transformer",),
    "asas_new.*": ("lightcurves/folded", "domains/lightcurves/new.py", "domains/lightcurves/summary.py"),
    "asas_fewshot.*.astromer1.*": ("lightcurves/astromer-classify",),
    "asas_fewshot.*.folded.*": ("lightcurves/folded",),
    "asas_fewshot.*": ("lightcurves/astromer", "lightcurves/transformer"),
    "denoise.*": ("lightcurves/denoiser",),
    "logg.*": ("lightcurves/astroconformer",),
    "s82.*": ("lightcurves/folded",),
    "signal.*": ("signals/gravitational-wave",),
    "ztf.*": ("lightcurves/transformer",),
    "gpt_char_cpu.*": ("text/gpt-char",),
    "gpt_char_gpu.*": ("text/gpt-char-large",),
    "wikitext2.ngram.*": ("benchmarks/ngram.py",),
    "wnut17_tags.*": ("text/tagging-bilstm", "objectives/viterbi.py"),
    "wnut17.bilstm.*": ("text/tagging-bilstm",),
    "wnut17.*": ("text/bert", "text/tagging"),
    "polarity.*.bert.*": ("text/bert", "text/sentiment"),
    "polarity.*.pretrained.*": ("text/bert", "text/sentiment"),
    "polarity.*.scratch.*": ("text/sentiment-scratch",),
    "ladder.transformer.*": ("text/transformer-multi30k",),
    "ladder.gpt_prompt.*": ("text/gpt-translate",),
    "ladder.lstm.*": ("text/seq2seq-lstm",),
    "ladder.*": ("text/seq2seq-gru",),
    "wavefunction.factored.*": ("spins/wavefunction-factored",),
    "wavefunction.square4.*": ("spins/wavefunction-square",),
    "wavefunction.*": ("spins/wavefunction",),
    "ising_bc.*.ceiling.*": ("domains/spins/lattices.py", "domains/spins/simulation.py"),
    "ising_bc.*.resnet18.*": ("spins/ising-temperature-resnet18",),
    "ising_bc.*.resnet50.*": ("spins/ising-temperature-resnet50",),
    "ising_bc.*": ("spins/ising-temperature",),
    "multi30k_en_de.*": ("text/transformer-multi30k",),
}
# Ids whose second or third word is the name of a recipe: asas.cnn.accuracy is lightcurves/cnn.
NAMED = {
    "digits": (1, "images/digits-{}"),
    "mnist": (1, "images/mnist-{}"),
    "builtin10": (1, "jets/{}"),
    "pythia10": (1, "jets/{}"),
    "asas": (1, "lightcurves/{}"),
    "ising": (1, "spins/ising-{}"),
    "wikitext2": (1, "text/wikitext-{}"),
    "polarity": (2, "text/sentiment-{}"),
    "memory": (1, "text/recall-{}"),
    "pronoun": (1, "text/pronouns-{}"),
}


def depends_on(name: str) -> list[str]:
    """Dependencies of a row: recipes, and paths from the root of the repository."""
    for pattern, found in DEPENDS.items():
        if fnmatchcase(name, pattern):
            return [
                one if one in golden() or one.startswith(("benchmarks/", "tests/")) else CODE + one for one in found
            ]
    first, *words = name.split(".")
    place, recipe = NAMED[first]
    return [recipe.format(words[place - 1])]


@cache
def golden() -> dict[str, Any]:
    """Golden runs by recipe, without the machine that recorded them."""
    runs: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text("utf-8"))["runs"]
    return {name: {key: value for key, value in run.items() if key != "machine"} for name, run in runs.items()}


@cache
def state_of(name: str) -> str:
    """Digest of the golden run of a recipe, or of the code of a file or folder.

    Empty if it no longer exists.
    """
    if name in golden():
        return digest(golden()[name])
    path, found = ROOT / name, hashlib.sha256()
    if not path.exists():
        return ""
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        found.update(f"{file.relative_to(ROOT)}\n".encode())
        found.update(code_of(file.read_text("utf-8")).encode())
    return found.hexdigest()[:12]


def digest(run: Any) -> str:
    """Digest of a golden run."""
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:12]


def code_of(text: str) -> str:
    """Python code without what cannot change a speed: comments, docstrings, sentences and white space.

    A sentence is a string of at least four words, such as an error message or the description of a key.
    """
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    starts = [0, *accumulate(map(len, lines))]
    code, cuts = b"".join(lines), []
    for node in ast.walk(ast.parse(text)):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        sentence = isinstance(node, ast.JoinedStr | ast.Constant) and len(_words(node)) >= 4
        if isinstance(node, ast.expr | ast.stmt) and (docstring or sentence):
            last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            cuts.append((starts[node.lineno - 1] + node.col_offset, last))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            first = starts[row - 1] + len(token.line[:column].encode())
            cuts.append((first, first + len(token.string.encode())))
    kept, place = [], 0
    for first, last in sorted(cuts):
        if last > place:  # not inside another cut
            kept.append(code[place:first])
            place = last
    plain = "".join((b"".join(kept) + code[place:]).decode().split())
    return re.sub(r",(?=[)\]}])", "", plain)


def _words(node: ast.JoinedStr | ast.Constant) -> list[str]:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value if isinstance(part, ast.Constant) else "x" for part in parts]
    return "".join(text for text in texts if isinstance(text, str)).split()


def with_state(row: dict[str, Any]) -> dict[str, Any]:
    """New row with its dependencies and their present digests."""
    return row | {"depends": {name: state_of(name) for name in depends_on(row["id"])}}


def changes_since(row: dict[str, Any]) -> list[str]:
    """Dependencies of a row that have changed since its measurement."""
    return [name for name, state in row["depends"].items() if state != state_of(name)]


def fill(path: Path) -> None:
    """Write `depends` into rows without it, and the golden runs of their recipes."""
    rows = json.loads(path.read_text("utf-8"))
    for row in rows:
        if "depends" not in row:
            names = depends_on(row["id"])
            row["depends"] = {name: state_of(name) if name in golden() else None for name in names}
    path.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def agree(one: Any, other: Any) -> bool:
    """Whether two golden runs agree to 1e-4, as they must on different models of CPU."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(agree(one[key], other[key]) for key in one if key != "sha256")
    if isinstance(one, list):
        return len(one) == len(other) and all(map(agree, one, other))
    return one == other or (one != one and other != other) or abs(one - other) <= 1e-4 * (1 + abs(other))


def carry(path: Path, before: dict[str, Any]) -> int:
    """Replace the digests of earlier golden runs in a file that agree with today's; return the number of rows."""
    rows, changed = json.loads(path.read_text("utf-8")), 0
    for row in rows:
        for name, state in row["depends"].items():
            same = name in before and name in golden() and state == digest(before[name])
            if same and state != state_of(name) and agree(before[name], golden()[name]):
                row["depends"][name], changed = state_of(name), changed + 1
    if changed:
        path.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return changed


def main() -> None:
    """Print the stale rows by the command that measures them again."""
    parser = argparse.ArgumentParser(description="Figures whose code changed since they were measured.")
    parser.add_argument("--fill", action="store_true", help="write `depends` into rows that lack it")
    parser.add_argument("--recorded-anew", metavar="COMMIT", help="keep scores whose golden runs agree with COMMIT")
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    options = parser.parse_args()
    if options.recorded_anew:
        place = f"{options.recorded_anew}:{GOLDEN.relative_to(ROOT)}"
        text = subprocess.run(["git", "show", place], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        runs = json.loads(text)["runs"]
        print(f"{sum(carry(path, runs) for path in files)} golden runs of rows agree with {options.recorded_anew}")
    if options.fill:
        for path in files:
            fill(path)
    rows = [row for path in files for row in json.loads(path.read_text("utf-8"))]
    stale = [row for row in rows if changes_since(row)]
    for command in dict.fromkeys(row["command"] for row in stale):
        some = [row for row in stale if row["command"] == command]
        print(f"{command}\n    measures  {', '.join(row['id'] for row in some)}")
        print(f"    changed   {', '.join(dict.fromkeys(name for row in some for name in changes_since(row)))}")
    print(f"{len(stale)} of {len(rows)} rows are stale" if stale else f"none of {len(rows)} rows is stale")


if __name__ == "__main__":
    main()
