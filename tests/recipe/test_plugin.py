"""A user's own file: loaded by choice, recorded by name and hash, asked for again."""

import subprocess
import sys

import pytest

from sciformer.domains.jets.simulate.jets import Jets
from sciformer.errors import UserError
from sciformer.evaluation.predictions import write_predictions
from sciformer.files.tables import write_table
from sciformer.metrics import METRICS
from sciformer.recipe import Recipe, describe, recipes, registry
from sciformer.recipe.options import options
from sciformer.recipe.plugin import Plugin, check_plugins, load, record_plugins
from sciformer.run import train
from tests.errors import refuses

BEADS = '''\
from sciformer.recipe.registry import Section, register

@register("tokens", "test-own-beads")
class Beads(Section):
    size: int = 3
    """How large a bead is."""


assert Beads.__annotations__ == {"size": int}  # no `from __future__ import annotations` of ours
'''


pytestmark = pytest.mark.usefixtures("own_plugins")


def refusal(path) -> UserError:
    registered = {section: dict(classes) for section, classes in registry.REGISTERED.items()}
    with pytest.raises(UserError) as caught:
        load(path)
    assert registered == registry.REGISTERED  # nothing of a broken file stays
    assert (caught.value.key, caught.value.file) == ("--plugin", str(path))
    return caught.value


def test_a_plugin_adds_its_names_and_is_known_by_its_hash(write):
    path = write(BEADS, "test_beads.py")
    plugin = load(path)
    assert (plugin.name, plugin.path, len(plugin.sha256)) == ("test_beads.py", path, 64)
    found = registry.find("tokens", "test-own-beads")
    assert found.__module__ == "sciformer_plugin_test_beads"
    assert options(found) == [("size", "a whole number", 3, "How large a bead is.")]
    assert record_plugins([plugin]) == [{"name": "test_beads.py", "sha256": plugin.sha256}]
    assert not (path.parent / "__pycache__").exists()


def test_the_same_file_twice_is_one_plugin(write):
    first = load(write(BEADS, "test_beads.py"))
    found = registry.find("tokens", "test-own-beads")
    assert load(str(first.path)) is first
    assert load(write(BEADS, "copy/test_beads.py")) is first
    assert registry.find("tokens", "test-own-beads") is found


def test_two_files_of_one_name_or_one_file_of_two_contents_are_refused(write):
    first = load(write(BEADS, "test_beads.py"))
    second = write(BEADS + "\n", "b/test_beads.py")
    error = refusal(second)
    assert f"{first.path} and {second}" in error.message
    assert "Rename" in error.hint
    error = refusal(write(BEADS + "# changed\n", "test_beads.py"))
    assert "test_beads.py" in error.message
    assert "Python" in error.hint
    assert "tokens test-own-beads" in refusal(write(BEADS, "other.py")).message


def test_files_that_cannot_be_plugins(write, tmp_path):
    assert str(tmp_path / "no.py") in refusal(tmp_path / "no.py").message
    assert str(tmp_path) in refusal(tmp_path).message
    message = refusal(write(BEADS, "a.txt")).message
    assert "a.txt" in message
    assert ".py" in message
    error = refusal(write("x = 1\n", "a.py"))
    assert "a.py" in error.message
    assert '@register("tokens"' in error.hint


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("\nhelp_me = 1 / 0\n", 2, ["ZeroDivisionError: division by zero", "a.py, line 2: help_me = 1 / 0"]),
        ("import json\njson.loads('x')\n", 2, ["JSONDecodeError", "a.py, line 2: json.loads('x')"]),
        ("x = 1\ndef f(:\n", 2, ["SyntaxError", "a.py, line 2: def f(:"]),
        ("import no_such_package\n", 1, ["No module named 'no_such_package'", "line 1: import no_such_package"]),
        ("raise SystemExit(3)\n", 1, ["SystemExit: 3", "line 1: raise SystemExit(3)"]),
        (BEADS.replace("test-own-beads", "text"), 3, ["UserError", "Beads", "'text'", 'line 3: @register("tokens"']),
        (BEADS + "raise KeyError\n", 10, ["KeyError", "line 10: raise KeyError"]),
        ("x = '\0'\n", None, ["null bytes"]),
    ],
)
def test_an_error_at_import_shows_the_users_own_line(write, text, line, reason):
    error = refusal(write(text, "a.py"))
    assert error.line == line
    assert [part for part in reason if part not in error.message] == []
    assert "sciformer_plugin_a" not in sys.modules
    assert load(write(BEADS, "a.py")).name == "a.py"  # mended


def test_a_run_asks_for_its_plugins_again(tmp_path):
    then = Plugin("beads.py", tmp_path / "beads.py", "a" * 64)
    now = Plugin("beads.py", tmp_path / "new" / "beads.py", "b" * 64)
    other = Plugin("other.py", tmp_path / "other.py", "c" * 64)
    check_plugins([], [])
    check_plugins([], [other])
    check_plugins(record_plugins([then]), [other, then])
    check_plugins(record_plugins([then, other]), [other, then])
    with refuses("beads.py", key="--plugin", hint="--plugin beads.py"):
        check_plugins(record_plugins([then]), [])
    with refuses("beads.py", "other.py", key="--plugin", hint="--plugin beads.py"):
        check_plugins(record_plugins([then, other]), [other])
    with refuses("aaaaaaaaaaaa", "bbbbbbbbbbbb", "beads.py", key="--plugin", file=now.path):
        check_plugins(record_plugins([then]), [now])
    check_plugins(record_plugins([then]), [now], accepted=True)
    for damaged in ("name", {"name": "then"}, ["then"]):
        with refuses("run.json", key="plugins"):
            check_plugins([damaged], [then])


def test_recipes_and_plugins_need_no_torch():
    code = "import sys, sciformer.recipe, sciformer.recipe.plugin; sciformer.recipe.recipes(); "
    code += "assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FOLDER = {
    "__init__.py": """
from sciformer.recipe.field import Field
FIELD = Field(title="beads", tokens={"test-beads": ".tokens:Beads"}, metric={"test-size": ".deep.size:size"})
""",
    "tokens.py": BEADS.replace('@register("tokens", "test-own-beads")\n', "").replace("Section, register", "Section"),
    "deep/__init__.py": "",
    "deep/size.py": """
from sciformer.metrics import metric
from ..tokens import Beads

@metric("higher", ("mean",), "mean size")
def size(mean):
    return float(sum(mean)) / Beads(kind="b").size
""",
    "recipes/small.yaml": "about: {title: small beads}\ntokens: {kind: test-beads, size: 2}\n",
}


@pytest.fixture
def folder(tmp_path, write):
    def write_files(name="beadwork", **changes):
        for file, text in {**FOLDER, **changes}.items():
            write(text, f"{name}/{file}")
        return tmp_path / name

    return write_files


def test_a_folder_is_a_field(folder):
    path = folder()
    plugin = load(path)
    assert (plugin.name, plugin.path) == ("beadwork", path)
    assert registry.find("tokens", "test-beads").__module__ == "sciformer_plugin_beadwork.tokens"
    assert METRICS["test-size"]({"mean": [3.0, 3.0]}) == 2
    assert registry.is_own("metric", "test-size")
    assert not registry.is_own("metric", "accuracy")
    assert "beadwork/small" in recipes()
    assert describe("beadwork/small").title == "small beads"
    assert load(path) is plugin
    assert not list(path.rglob("__pycache__"))
    (path / "tokens.py").write_text("")
    assert "Python" in refusal(path).hint  # any of its files counts
    assert registry.find("tokens", "test-beads").model_fields["size"].default == 3


@pytest.mark.parametrize(
    ("changes", "mentions", "line"),
    [
        ({"__init__.py": "x = 1\n"}, ["manifest"], None),
        ({"__init__.py": "\n1 / 0\n"}, ["ZeroDivisionError", "line 2: 1 / 0"], 2),
        ({"__init__.py": FOLDER["__init__.py"].replace("test-beads", "text")}, ["tokens text"], None),
        ({"__init__.py": "from . import tokens\n", "tokens.py": "import nothing_there\n"}, ["nothing_there"], 1),
    ],
)
def test_a_folder_that_cannot_be_a_plugin(folder, changes, mentions, line):
    error = refusal(folder(**changes))
    assert [part for part in mentions if part not in error.message] == []
    assert error.line == line
    assert load(folder()).name == "beadwork"


def test_a_folder_may_not_be_called_like_a_field(folder):
    assert "the field jets" in refusal(folder("jets")).message


# One file each: a format, a trunk, a metric

FORMAT = """\
import json
import numpy as np
from sciformer.data.columns import Lists
from sciformer.files.formats.base import Format, TableWriter
from sciformer.files.formats.memory import MemoryTable
from sciformer.files.formats.padded import events_table
from sciformer.recipe.registry import register

def read(path, layout):
    return MemoryTable(path, events_table(json.loads(path.read_text()[4:])), layout)

class Writer(TableWriter):
    def add(self, table):
        self.path.write_text("TOY " + json.dumps({name: rows(column) for name, column in table.items()}))

    def close(self, about):
        pass

def rows(column):
    if isinstance(column, Lists):
        return [part.tolist() for part in np.split(column.values, np.cumsum(column.lengths)[:-1])]
    return column.tolist()

register("format", "toy")(Format("TOY", (".toy",), writer=Writer, reader=read, magic=(b"TOY ",)))
"""
TRUNK = """\
from sciformer.nn.trunks.deep_sets import DeepSets, DeepSetsOptions
from sciformer.recipe.registry import register

@register("trunk", "toy_sets")
class ToySetsOptions(DeepSetsOptions):
    factor: int = 2

    def build_trunk(self, form, causal=False, memory_dim=None):
        return DeepSets(form.width, [self.factor * self.dim] * self.depth)
"""
METRIC = """\
from sciformer.metrics import metric
from sciformer.recipe.registry import register

@register("metric", "toy_doubt")
@metric("lower", ("probabilities",), "mean distance of the largest probability from 1")
def toy_doubt(probabilities):
    return float(1 - probabilities.max(1).mean())
"""


def test_a_format_a_trunk_and_a_metric_are_one_file_each(write, tmp_path):
    files = {"toy_format.py": FORMAT, "toy_trunk.py": TRUNK, "toy_metric.py": METRIC}
    plugins = [load(write(text, name)) for name, text in files.items()]
    jets = Jets(number=40, classes=["QCD", "Hbb"]).make(40)
    write_table(tmp_path / "jets.toy", [{**jets, "label": (jets["label"] == "QCD").astype(int)}])
    changes = {"data": {"kind": "events", "files": [str(tmp_path / "jets.toy")]}, "objective.kind": "classify"}
    changes |= {"model.trunk": "toy_sets", "model.dim": 8, "model.factor": 3, "objective.metrics": ["toy_doubt"]}
    changes |= {"train.steps": 3, "train.batch": 8, "train.device": "cpu", "train.best": "toy_doubt"}
    recipe = Recipe.load("jets/pfn", changes)
    run = train(recipe, tmp_path / "run", plugins=plugins, show=False, report=False)
    assert run.model.trunk.dim == 24
    assert 0 < run.evaluate("test").scores["toy_doubt"] < 0.5
    assert write_predictions(run, [tmp_path / "jets.toy"], tmp_path / "answers.toy") == 40
    assert b"score_0" in (tmp_path / "answers.toy").read_bytes()
