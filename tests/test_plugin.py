"""A user's own file: loaded by choice, recorded by name and hash, asked for again."""

import subprocess
import sys

import pytest

from sciformer import plugin as module
from sciformer import registry
from sciformer.errors import UserError
from sciformer.plugin import Plugin, load, recorded, required
from sciformer.recipe import options

BEADS = '''\
from sciformer.registry import Section, register

@register("tokens", "test-own-beads")
class Beads(Section):
    size: int = 3
    """How large a bead is."""
'''


@pytest.fixture(autouse=True)
def _registered_here_only(monkeypatch):
    monkeypatch.setattr(module, "LOADED", {})
    monkeypatch.setattr(registry, "REGISTERED", {section: {} for section in registry.BUILT_IN})
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("sciformer_plugin_"):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="test_beads.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write_file


def refusal(path) -> str:
    registered = {section: dict(classes) for section, classes in registry.REGISTERED.items()}
    with pytest.raises(UserError) as caught:
        load(path)
    assert registered == registry.REGISTERED  # nothing of a broken file stays
    return str(caught.value)


def test_a_plugin_adds_its_names_and_is_known_by_its_hash(write):
    path = write(BEADS)
    plugin = load(path)
    assert (plugin.name, plugin.path, len(plugin.sha256)) == ("test_beads.py", path, 64)
    found = registry.find("tokens", "test-own-beads")
    assert found.__module__ == "sciformer_plugin_test_beads"
    assert options(found) == [("size", "a whole number", 3, "How large a bead is.")]
    assert recorded([plugin]) == [{"name": "test_beads.py", "sha256": plugin.sha256}]
    assert not (path.parent / "__pycache__").exists()


def test_the_same_file_twice_is_one_plugin(write):
    first = load(write(BEADS))
    found = registry.find("tokens", "test-own-beads")
    assert load(str(first.path)) is first
    assert load(write(BEADS, "copy/test_beads.py")) is first
    assert registry.find("tokens", "test-own-beads") is found


def test_two_files_of_one_name_or_one_file_of_two_contents_are_refused(write):
    load(write(BEADS))
    assert "expected one plugin called test_beads.py; found two" in refusal(write(BEADS + "\n", "b/test_beads.py"))
    assert "Start Python anew" in refusal(write(BEADS + "# changed\n"))
    message = refusal(write(BEADS, "other.py"))
    assert "found tokens test-own-beads, which another plugin registered" in message


def test_files_that_cannot_be_plugins(write, tmp_path):
    assert "does not exist" in refusal(tmp_path / "no.py")
    assert "is not a file" in refusal(tmp_path)
    assert "a.txt, which does not end in .py" in refusal(write(BEADS, "a.txt"))
    assert "expected a.py to register something; found nothing" in refusal(write("x = 1\n", "a.py"))
    assert '@register("tokens"' in refusal(write("x = 1\n", "a.py"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\nhelp_me = 1 / 0\n", ["ZeroDivisionError: division by zero", "a.py, line 2: help_me = 1 / 0"]),
        ("import json\njson.loads('x')\n", ["JSONDecodeError", "a.py, line 2: json.loads('x')"]),
        ("x = 1\ndef f(:\n", ["SyntaxError", "a.py, line 2: def f(:"]),
        ("import no_such_package\n", ["No module named 'no_such_package'", "line 1: import no_such_package"]),
        ("raise SystemExit(3)\n", ["SystemExit: 3", "line 1: raise SystemExit(3)"]),
        (
            BEADS.replace("test-own-beads", "text"),
            ["'text', which Sciformer has already", 'line 3: @register("tokens"'],
        ),
        (BEADS + "raise KeyError\n", ["KeyError", "line 7: raise KeyError"]),
        ("x = '\0'\n", ["null bytes"]),
    ],
)
def test_an_error_at_import_shows_the_users_own_line(write, text, reason):
    message = refusal(write(text, "a.py"))
    assert message.startswith("expected a.py to import; found ")
    assert [part for part in reason if part not in message] == []
    assert "sciformer_plugin_a" not in sys.modules
    assert load(write(BEADS, "a.py")).name == "a.py"  # mended


def test_a_run_asks_for_its_plugins_again(tmp_path):
    then = Plugin("beads.py", tmp_path / "beads.py", "a" * 64)
    now = Plugin("beads.py", tmp_path / "new" / "beads.py", "b" * 64)
    other = Plugin("other.py", tmp_path / "other.py", "c" * 64)
    required(None, [])
    required(None, [other])
    required(then.record(), [other, then])
    required(recorded([then, other]), [other, then])
    with pytest.raises(UserError, match=r"plugin beads\.py .* found none\. Pass --plugin beads\.py"):
        required(then.record(), [])
    with pytest.raises(UserError, match=r"found only other\.py\. Pass --plugin beads\.py"):
        required(recorded([then, other]), [other])
    with pytest.raises(UserError, match=r"sha256 aaaaaaaaaaaa\); found .*new/beads\.py with another content"):
        required(then.record(), [now])
    required(then.record(), [now], accepted=True)


def test_recipes_and_plugins_need_no_torch():
    code = (
        "import sys, sciformer.recipe, sciformer.plugin; sciformer.recipe.recipes(); assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
