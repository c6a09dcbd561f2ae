"""The repository keeps its own promises: the map is true, the pages are short, nothing odd is shipped."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import sciformer
from sciformer import nn

ROOT = Path(__file__).parents[1]


def test_the_readme_is_short_and_its_links_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]
    assert len(links) >= 15
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_the_map_of_the_architecture_is_that_of_the_packages():
    text = (ROOT / "docs" / "architecture.md").read_text()
    page = runpy.run_path(str(ROOT / "docs" / "tree.py"))["page"]
    assert text == page(text), "run `make map`"
    assert len(re.findall(r"\w+\.py\b", text.split("```")[1])) >= 70


def test_the_map_says_where_ideas_are():
    text = (ROOT / "docs" / "architecture.md").read_text()
    hops = re.findall(r"^\| \d \| `([\w/.]+)` \|", text, re.M)
    assert len(hops) == 8
    table = text.split("## Where do I find")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 40
    named = [name for line in rows for name in re.findall(r"`([\w/<>.]+)`", line.rpartition("|")[0].rpartition("|")[2])]
    fields = [path.name for path in (ROOT / "src/sciformer/domains").iterdir() if (path / "__init__.py").exists()]
    for name in {*hops, *named}:
        places = [name.replace("<field>", field) for field in fields] if "<" in name else [name]
        assert any((ROOT / "src" / "sciformer" / place).exists() for place in places), name


def test_public_names_are_what_the_package_says():
    assert nn.__all__ == sorted(nn.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(nn, name) for name in nn.__all__)
    for name in nn.__all__:
        thing = getattr(nn, name)
        assert thing.__doc__ or isinstance(thing, (dict, tuple)), name


def test_public_names_of_the_package_come_when_they_are_asked_for():
    assert sciformer.__all__ == sorted(sciformer.__all__)
    assert {*sciformer.PLACES, *sciformer.PACKAGES} == set(sciformer.__all__) - {"__version__"}
    assert all(getattr(sciformer, name).__doc__ for name in sciformer.PLACES)
    assert set(sciformer.__all__) <= set(dir(sciformer))
    shown = set(re.findall(r"\w+", (sciformer.__doc__ or "").split("Functions are in")[0]))
    assert set(sciformer.PLACES) <= shown
    taken = {path.stem for path in (ROOT / "src" / "sciformer").iterdir()}
    assert not taken & set(sciformer.PLACES), "a module of that name would hide it"


def test_nothing_runs_at_import():
    """No output, no change of global state, no torch for the version alone, and no compiler until it is used."""
    code = "import sys, sciformer; assert 'torch' not in sys.modules; import torch; s = torch.initial_seed(); "
    code += "r = torch.get_rng_state(); t = torch.get_num_threads(); import sciformer.run, sciformer.inspection; "
    code += "assert 'torch._dynamo' not in sys.modules; "
    code += (
        "assert torch.equal(r, torch.get_rng_state()) and t == torch.get_num_threads() and s == torch.initial_seed()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_versions_agree():
    assert f"version: {sciformer.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {sciformer.__version__}" in (ROOT / "CHANGELOG.md").read_text()
