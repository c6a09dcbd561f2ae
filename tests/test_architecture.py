"""The tree keeps its promise: fields of science live below domains/, and the rest works without any of them."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from sciformer.recipe.field import EXTENSION_POINTS, fields
from sciformer.recipe.registry import SHARED_PLACES
from tests.paths import ROOT

SOURCE = ROOT / "src" / "sciformer"
FILES = sorted(path for path in SOURCE.rglob("*.py") if "__pycache__" not in path.parts)
TREES = {path: ast.parse(path.read_text("utf-8")) for path in FILES}
FIELDS = fields()
# A recipe of another field to train where one is missing, and what makes it small.
SPINS = ("spins/ising-vit", {"data.size": 8, "data.number": 6, "data.chains": 6, "data.samples": 1, "data.cache": ""})
RECALL = ("text/recall-rnn", {"data.lag": 4, "data.number": 40})
OTHERS = {"atmosphere": SPINS, "text": SPINS, "images": RECALL, "jets": SPINS, "lightcurves": RECALL, "spins": RECALL}
PROGRAM = """
import importlib, json, pathlib, sys
import sciformer
from sciformer.recipe import Recipe, recipes
from sciformer.run import train
root, name, changes, gone = json.loads(sys.argv[1])
assert pathlib.Path(sciformer.__file__).parent == pathlib.Path(root) / "sciformer", sciformer.__file__
for path in sorted(pathlib.Path(root).rglob("*.py")):
    module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    if not module.endswith(("__main__", "_triton")):
        importlib.import_module(module)
listed = {one.partition("/")[0] for one in recipes()}
assert name in recipes() and not listed & set(gone), listed
run = train(Recipe.load(name, changes), pathlib.Path(root) / "run", show=False, report=False)
print(json.dumps({"modules": len(sys.modules), "loss": run.scores["loss"]}))
"""


def home(path):
    """The field that a file belongs to; empty for shared code."""
    parts = path.relative_to(SOURCE).parts
    return parts[1] if parts[0] == "domains" and len(parts) > 2 else ""


def imported(path):
    """The modules of this package that a file imports, absolute below sciformer."""
    package = list(path.relative_to(SOURCE).with_suffix("").parts[:-1])
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("sciformer.") for alias in node.names if "sciformer" in alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            if node.level or name.startswith("sciformer"):
                name = name.removeprefix("sciformer").lstrip(".")
                yield from ((f"{name}.{alias.name}").lstrip(".") for alias in node.names)


def test_there_is_something_to_look_at():
    assert len(FILES) > 250
    assert sorted(FIELDS) == ["atmosphere", "images", "jets", "lightcurves", "spins", "text"]
    assert sorted(OTHERS) == sorted(FIELDS)
    folders = sorted(path.name for path in (SOURCE / "domains").iterdir() if (path / "__init__.py").exists())
    assert folders == sorted(FIELDS)


def test_nothing_outside_domains_imports_from_it():
    wrong = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in FILES
        if not home(path)
        for name in imported(path)
        if name.split(".")[0] == "domains"
    ]
    assert not wrong, "\n".join(wrong)


def test_a_field_imports_only_fields_it_declares():
    wrong = []
    for path in FILES:
        if not (mine := home(path)):
            continue
        allowed = {mine, *FIELDS[mine].uses}
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "domains" and len(parts) > 1 and parts[1] not in allowed:
                wrong.append(f"{path.relative_to(SOURCE)}: {name}")
    assert not wrong, "\n".join(wrong)


def registered():
    """The names that fields register, but for those that the library registers itself."""
    own = {name for section in SHARED_PLACES.values() for name in section}
    names = {name for one in FIELDS.values() for what in EXTENSION_POINTS for name in getattr(one, what)}
    assert len(names) > 15
    return (names | set(FIELDS)) - own


def strings(tree):
    """The string literals of a module, but for docstrings, texts below fields of a section, names of attributes."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    texts |= {id(call.args[1]) for call in calls if ast.unparse(call.func) in ("getattr", "hasattr")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node


def test_no_string_in_shared_code_is_a_name_of_a_field():
    names = registered()
    wrong = [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {node.value!r}"
        for path in FILES
        if not home(path)
        for node in strings(TREES[path])
        if node.value in names
    ]
    assert not wrong, "\n".join(wrong)


def test_shared_code_asks_tokens_through_their_contract():
    wrong = []
    for path in FILES:
        if home(path) or path.relative_to(SOURCE).parts[0] == "tokens":
            continue
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
                asked = ast.unparse(node.args[0])
                if asked.rpartition(".")[2] in ("tokens", "stream_tokens", "only"):
                    wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


def dependants(name):
    """A field and those that use it."""
    gone = {name}
    while more := {one for one, field in FIELDS.items() if {*field.uses} & gone} - gone:
        gone |= more
    return gone


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_the_rest_works_without_a_field(name, tmp_path):
    shutil.copytree(SOURCE, tmp_path / "sciformer", ignore=shutil.ignore_patterns("__pycache__"))
    gone = dependants(name)
    for one in gone:
        shutil.rmtree(tmp_path / "sciformer" / "domains" / one)
    recipe, changes = OTHERS[name]
    assert recipe.partition("/")[0] not in gone
    small = {"model.dim": 8, "model.depth": 1, "train.batch": 4, "train.steps": 2, "train.epochs": None}
    small |= {"train.device": "cpu", "train.warmup": 1, "train.evaluate_every": 2}
    order = json.dumps([str(tmp_path), recipe, {**small, **changes}, sorted(gone)])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, order], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["loss"] > 0


def test_folders_are_small_enough_to_read():
    folders = Counter(path.parent for path in FILES)
    crowded = {str(folder.relative_to(SOURCE)): count for folder, count in folders.items() if count > 16}
    assert crowded == {}
    assert folders[SOURCE] <= 8
    families = Counter(
        (path.parent, path.stem.partition("_")[0]) for path in FILES if path.stem.strip("_") == path.stem
    )
    large = {f"{folder.relative_to(SOURCE)}/{word}_*": n for (folder, word), n in families.items() if n >= 4}
    assert large == {}


def test_tests_mirror_the_tree():
    """Every folder of tests has the name of a folder of the package, but for those about something else."""
    others = {"benchmarks", "docs", "faults", "fuzz", "gpu", "slurm"}
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    strange = [str(one) for one in folders if one.parts and one.parts[0] not in others and not (SOURCE / one).is_dir()]
    assert strange == []
    assert len(folders) > 30
