"""The guides run, print what they say, and draw the pictures they show."""

import re
from pathlib import Path

import pytest

from tests.docs.commands import DOCS, changed, run_page, runner

GUIDE = DOCS / "attention.md"
TEXT = GUIDE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    return runner.run(GUIDE, folder), folder


def test_every_block_ran_and_printed_what_the_guide_says(ran):
    results, _ = ran
    assert [result.problem for result in results if result.problem] == []
    assert len(results) == TEXT.count("```python\n") >= 15
    assert sum(bool(result.expected) for result in results) == TEXT.count("```text\n") >= 12


def test_every_picture_is_drawn_and_shown(ran):
    shown = re.findall(r"!\[[^\]]+\]\(pictures/([^)]+)\)", TEXT)
    drawn = {path.name for path in ran[1].iterdir()}
    assert len(shown) == len(set(shown)) >= 9
    assert set(shown) == drawn
    kept = {path.name: path.stat().st_size for path in (DOCS / "pictures").iterdir()}
    assert set(shown) <= set(kept)
    assert all(1_000 < kept[name] < 80_000 for name in shown)


@pytest.mark.usefixtures("own_plugins")
@pytest.mark.parametrize("page", ["api.md", "architecture.md", "concepts.md", "own-token.md", "sklearn.md"])
def test_code_on_other_pages_runs_too(page, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    results = runner.run(DOCS / page, tmp_path)
    assert [result.problem for result in results if result.problem] == []
    assert len(results) == len(runner.BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))) >= 1


# The commands of the README and of the guide to text, each with a setting that takes seconds.
LATTICES = {"data.size": 8, "data.number": 8, "data.chains": 4, "data.samples": 2}
STEPS = {"train.steps": 4, "train.warmup": 2, "train.evaluate_every": 4, "train.save_every": 4, "train.average_last": 0}
TRAINING = {"model.dim": 16, "train.steps": 4, "train.batch": 8}
TINY = {
    "train": TRAINING,
    "check": TRAINING,
    "pretrain": {**STEPS, "model.dim": 16, "model.heads": 2, "model.depth": 2, "tokens.vocabulary": 300},
    "finetune": {**STEPS, "train.batch": 8},
    "translate": {"beam": 1},
    "compare": {**TRAINING, "seeds": 1},
    "generate": {"length": 5},
    "inspect": {"samples": 1},
}
PAIRS = STEPS | {"train.tokens": 256, "model.dim": 32, "objective.beam": 1}


def tiny(words):
    changes = TINY.get(words[0], {}) | (LATTICES if any(word.startswith("spins/") for word in words[1:]) else {})
    if words[0] == "train" and any("{}" in word or "translation" in word for word in words):
        changes = changes | PAIRS
    if words[0] == "simulate":
        changes = (
            {"number": 120} if words[1] == "jets" else {key.removeprefix("data."): LATTICES[key] for key in LATTICES}
        )
    if words[0] == "recipes":
        return words
    return changed(words, changes)


FILES = {
    "input.txt": "To be, or not to be, that is the question.\n" * 60,
    **{f"{part}.en": "a dog\na cat\ntwo dogs\ntwo cats\n" * 4 for part in ("train", "val")},
    **{f"{part}.de": "ein hund\neine katze\nzwei hunde\nzwei katzen\n" * 4 for part in ("train", "val")},
    "new.en": "a dog\n",
    "reviews.tsv": "text\tlabel\n" + "".join(f"take {i} is good\tpos\ntake {i} is bad\tneg\n" for i in range(20)),
}


@pytest.mark.usefixtures("own_plugins", "_without_drawing")
def test_the_readme_runs_with_a_tiny_setting(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    _, seen, _ = run_page("../README.md", tmp_path, tiny, 5)
    assert {"recipes", "new", "check", "train", "generate", "compare", "inspect", "predict", "simulate"} <= seen
    assert {"translate", "pretrain", "finetune", "export"} <= seen


@pytest.mark.usefixtures("own_plugins", "_without_drawing")
def test_the_guide_to_text_runs_with_a_tiny_setting(tmp_path):
    text, seen, made = run_page("text.md", tmp_path, tiny, 15)
    wanted = {"new", "check", "train", "generate", "evaluate", "translate", "compare", "pretrain", "finetune"}
    assert wanted | {"predict", "embed", "export", "import"} == seen
    assert {"alignment.png", "new.de", "answers.csv", "heads.png"} <= made
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(shown) == len(set(shown)) == 3
    assert all(1_000 < (DOCS / name).stat().st_size < 120_000 for name in shown)


def test_no_page_with_code_is_forgotten():
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    coded = {page.name for page in pages if "```python" in page.read_text(encoding="utf-8")}
    names = (
        "README api architecture attention concepts images jets-tutorial jets lightcurves own-token pictures sklearn"
    )
    assert coded == {f"{name}.md" for name in [*names.split(), "spins", "text"]}


def guide(folder, text):
    path = folder / "guide.md"
    path.write_text(text, encoding="utf-8")
    return path


RIGHT = "Words.\n\n```python\nx = 2\n```\n\n```python\nprint(x + 2)\n```\n\n```text\n4\n```\n"


COMMAND = """```yaml my.yaml
base: text/gpt-char
```

```sh
# a comment, and a command that is not ours
rm -rf everything
sciformer recipes my.yaml \\
```

```
not compared
```
"""


def call(path, *options):
    return runner.main([str(path), "--pictures", str(path.parent / "pictures"), *options])


@pytest.mark.parametrize("text", [RIGHT, RIGHT.rstrip(), RIGHT.replace("print(x + 2)", "print(x + 2, end='')")])
def test_a_right_guide_passes_also_without_a_last_newline(tmp_path, text, capsys):
    assert call(guide(tmp_path, text)) == 0
    assert "2 blocks ran, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        (RIGHT.replace("\n4\n", "\n5\n"), ["guide.md:7: ", "\n-5\n+4\n"]),
        (RIGHT.replace("\n\n```text\n4\n```", ""), []),
        (RIGHT.replace("print(x + 2)", "x"), []),
        ("Words alone.\n", []),
        (RIGHT.replace("x = 2", "x = 1\nx / 0"), ['guide.md", line 5', "ZeroDivisionError", "1 blocks ran, 1 failed"]),
        (COMMAND.replace("recipes my", "recipes your"), ["exit status 2 of sciformer recipes your.yaml"]),
        (COMMAND.replace("```\nnot", "```text\nnot"), ["-not compared"]),
    ],
)
def test_a_wrong_guide_fails(tmp_path, capsys, text, mentions):
    assert call(guide(tmp_path, text)) == 1
    answer = "".join(capsys.readouterr())
    assert [mention for mention in mentions if mention not in answer] == []


@pytest.mark.parametrize("text", [RIGHT.replace("\n4\n", "\n5\n"), RIGHT.replace("\n\n```text\n4\n```", "")])
def test_write_puts_the_output_into_the_guide(tmp_path, text):
    path = guide(tmp_path, text)
    assert call(path, "--write") == 0
    assert path.read_text(encoding="utf-8") == RIGHT


def test_files_are_written_and_commands_are_run(tmp_path, capsys):
    assert call(guide(tmp_path, COMMAND)) == 0
    assert "2 blocks ran, 0 failed" in capsys.readouterr().out
    assert (tmp_path / "pictures" / "my.yaml").read_text() == "base: text/gpt-char\n"


def test_pictures_land_in_their_folder(tmp_path):
    code = "from pathlib import Path\nPath('here.png').write_text('x')\n"
    here = Path.cwd()
    assert call(guide(tmp_path, f"```python\n{code}```\n")) == 0
    assert (tmp_path / "pictures" / "here.png").exists()
    assert Path.cwd() == here
