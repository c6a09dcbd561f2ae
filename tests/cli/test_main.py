"""The command line itself: quick help, mistakes answered with what was meant, exit statuses, pipes, signals, ranks."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch

from sciformer import __version__
from sciformer.cli.main import app, main
from sciformer.cli.terminal import LossyFile, say
from sciformer.recipe import recipes

VERBS = ["recipes", "new", "check", "train", "pretrain", "finetune", "submit", "status", "compare"]
VERBS += [
    "evaluate",
    "calibrate",
    "predict",
    "translate",
    "embed",
    "generate",
    "report",
    "inspect",
    "simulate",
    "import",
    "export",
]
PLAIN = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "RANK", "COLUMNS")}
PLAIN |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
TEXT = "the quick brown fox jumps over the lazy dog, and the lazy dog sleeps on.\n" * 30
TINY = ["--model.dim=16", "--model.depth=1", "--model.heads=2", "--tokens.context=16", "--train.batch=4"]


def sciformer(*words, **more):
    """The command in a process of its own."""
    environment = PLAIN | more.pop("environment", {})
    line = [sys.executable, "-m", "sciformer", *words]
    return subprocess.run(line, capture_output=True, text=True, env=environment, check=False, timeout=120, **more)


# Help


def test_help_is_quick_and_needs_no_torch():
    code = "import sys; from sciformer.cli.main import main; s = main(sys.argv[1:]); "
    code += "sys.exit(s or 'torch' in sys.modules or 'numpy' in sys.modules)"
    for words in (["--help"], ["train", "--help"], ["recipes"]):
        spent = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, env=PLAIN, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert done.returncode == 0, done.stderr
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            if spent[-1] < 0.5 or words == ["recipes"]:
                break
        assert min(spent) < (1.5 if words == ["recipes"] else 0.5), words  # a busy machine gets several tries


def test_every_verb_has_help_that_fits_in_80_columns(capsys, monkeypatch):
    named = [name for name in app if not name.startswith("-")]
    assert sorted(named, key=lambda name: app[name].sort_key) == VERBS
    for width in (80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        for words in ([], ["--help"], *([verb, "--help"] for verb in VERBS)):
            assert main(words) == 0
            printed = capsys.readouterr()
            assert printed.err == ""
            assert printed.out.startswith("Usage: sciformer ")
            assert max(map(len, printed.out.splitlines())) <= width
            assert "\x1b" not in printed.out


def test_help_names_the_verbs_in_the_order_of_work_and_says_how_to_change_keys(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["--help"])
    text = capsys.readouterr().out
    assert [text.index(f"│ {verb} ") for verb in VERBS] == sorted(text.index(f"│ {verb} ") for verb in VERBS)
    assert "sciformer train spins/ising-vit" in text
    for words, expected in (("train", True), ("compare", True), ("report", False), ("recipes", False)):
        main([words, "--help"])
        assert ("--model.depth 8" in capsys.readouterr().out) is expected


def test_python_dash_m_and_the_version():
    done = sciformer("--version")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, __version__, "")


def test_completion_is_installed_in_the_home_folder(tmp_path):
    done = sciformer("--install-completion", environment={"HOME": str(tmp_path), "SHELL": "/bin/bash"})
    assert done.returncode == 0, done.stderr
    (script,) = tmp_path.glob(".local/**/sciformer")
    assert all(verb in script.read_text() for verb in VERBS)


# Mistakes


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("trian", ['"trian"', 'Did you mean "train"?']),
        ("--versoin", ["--versoin", "Did you mean --version?"]),
        ("train text/gpt-char --rum x", ["--rum", "Did you mean --run?"]),
        ("train text/gpt-char --run=", ["--run", "empty"]),
        ("compare text/gpt-char --run=", ["--run", "empty"]),
        ("import model --run=", ["--run", "empty"]),
        ("train text/gpt-char --depth 3", ["--depth", "Did you mean --model.depth?"]),
        ("train text/gpt-char --learning-rate 3", ["--learning-rate", "`sciformer train --help`"]),
        ("train text/gpt-char more", ["'more'", "`sciformer train --help`"]),
        ("new", ["KIND", "images, patches, arrays, jets, lightcurves, text"]),
        (
            "simulate",
            [
                "WHAT",
                "copying_memory, cues, flows, galaxies, jets, lattices, lenses, lightcurves",
                "pronouns, quantum, scenes",
            ],
        ),
        ("simulate galaxies", ["`sciformer simulate galaxies`", "OUT"]),
        ("simulate jets a.npz b.npz", ["'b.npz'"]),
        ("generate", ["RUN", "`sciformer train RECIPE`"]),
        ("train --model.depth 8 text/gpt-char", ["--model.depth", "RECIPE"]),
        ("compare spins/ising-vit --seeds x", ["--seeds", '"x"', "int"]),
        ("train gpt-cha", ["gpt-cha", "Did you mean text/gpt-char, text/gpt-char-large"]),
        ("train qqqqq", ["qqqqq", "`sciformer recipes`", ".yaml"]),
        ("train text/gpt-char --model.dept 3", ["Did you mean model.depth?"]),
        ("train text/gpt-char --model.depth x", ["a whole number, at least 0", '"x"']),
        ("train text/gpt-char --model.depth 1 --model.depth 2", ["--model.depth a b"]),
        ("train text/gpt-char", ["--data.files"]),
        ("train text/gpt-char --data.files input.txt", ["'input.txt'"]),
        ("train text/gpt-char --plugin no.py", ["--plugin", "no.py"]),
        ("recipes --data.size 3", ["--data.size", "recipe"]),
        ("compare text/gpt-chr", ["Did you mean text/gpt-char"]),
        ("compare spins/ising-vit --seeds 0", ["seed"]),
        ("compare spins/ising-vit --grid rate", ["train.learning_rate=1e-3,3e-4"]),
        ("compare spins/ising-vit --grid train.learning_rats=1,2", ["Did you mean train.learning_rate?"]),
        ("generate runs/x", ["runs/x", "sciformer train RECIPE"]),
        ("report model.pt", ["model.pt", "run code"]),
        ("report .", ["no run at .", "folder"]),
        ("report x --model.depth 8", ["--model.depth", "recipe"]),
        ("generate x --prompt a --file b", ["--prompt", "--file"]),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(refused, line, mentions):
    text = refused(*line.split())
    assert [mention for mention in mentions if mention not in text] == []


def test_a_missing_recipe_is_answered_with_those_there_are(refused):
    for verb in ("train", "check", "compare"):
        text = refused(verb)
        assert text.startswith(f"`sciformer {verb}` needs RECIPE. ")
        assert ", ".join(recipes()[:3]) in text
        assert text.endswith(f"See `sciformer {verb} --help`.")


def test_a_missing_run_is_answered_with_those_there_are(refused, tmp_path):
    for name in ("gpt-char", "compare/a/seed-0"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    (tmp_path / "runs" / "gpt-char" / "weights.bin2").write_text("")
    assert "needs RUN. Runs here: runs/compare/a/seed-0, runs/gpt-char." in refused("evaluate")
    assert "Did you mean runs/gpt-char?" in refused("report", "runs/gpt-chr")
    text = refused("report", "runs/gpt-char/weights.bin2")
    assert "runs/gpt-char/weights.bin2" in text
    assert f"Its run is {tmp_path / 'runs/gpt-char'}." in text


def test_a_run_in_the_home_folder(refused, tmp_path, monkeypatch):
    """A shell leaves the tilde of `--run=~/x` as it is."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "x").write_text("a file")
    assert str(tmp_path / "home" / "x") in refused("train", "text/gpt-char", "--run=~/x")
    assert str(tmp_path / "home" / "y") in refused("report", "~/y")
    assert "--run" in refused("train", "text/gpt-char", "--run", " ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


# Exit statuses, pipes, colours


def test_a_fault_of_ours_keeps_its_traceback():
    code = "import sys, sciformer.cli.show as s; from sciformer.cli.main import run; "
    code += "s.show_recipes = lambda console: 1 / 0; sys.argv = ['sciformer', 'recipes']; run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=PLAIN, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("words", ["recipes", "train --help"])
def test_a_reader_that_goes_away_is_no_fault(words):
    line = f"set -o pipefail; {sys.executable} -u -m sciformer {words} | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=PLAIN, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    read, write = os.pipe()
    os.close(read)  # gone before the first word
    line = [sys.executable, "-m", "sciformer", *words.split()]
    done = subprocess.run(line, stdout=write, stderr=subprocess.PIPE, text=True, env=PLAIN, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_colours_are_for_terminals():
    for words in (["recipes"], ["trian"]):
        done = sciformer(*words)
        assert "\x1b" not in done.stdout + done.stderr
    assert "\x1b" in sciformer("recipes", environment={"FORCE_COLOR": "1"}).stdout


def test_ctrl_c_outside_a_training(capsys, monkeypatch):
    def interrupt(console):
        raise KeyboardInterrupt

    monkeypatch.setattr("sciformer.cli.show.show_recipes", interrupt)
    assert main(["recipes"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_training_is_stopped_by_signals_and_the_same_command_goes_on_to_its_end(tmp_path, capsys, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT)
    line = ["train", "text/gpt-char", "--run", "run", "--data.files", "text.txt", *TINY]
    line += ["--train.device=cpu", "--train.steps=300", "--train.log_every=1", "--train.evaluate_every=300"]
    last = 0
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        log = tmp_path / "run" / "metrics.jsonl"
        before = log.stat().st_size if log.exists() else 0
        command = [sys.executable, "-m", "sciformer", *line]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=PLAIN)
        while process.poll() is None and not (log.exists() and log.stat().st_size > before):
            time.sleep(0.005)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == status, err
        assert out == ""
        assert err.splitlines()[-1].startswith(f"stopped by {number.name} at step ")
        assert err.endswith("; the same command resumes from there\n")
        step = int(err.split("at step ")[1].split(";")[0])
        assert last < step < 300
        assert (tmp_path / "run" / "checkpoints" / f"step-{step:07}").exists()
        last = step
    monkeypatch.setattr("sciformer.run.Run.report", lambda run: run.folder.write("report.html", ""))
    assert main(line) == 0
    printed = capsys.readouterr()
    assert f"from step {last}\n" in printed.err
    assert "report: run/report.html\nnext: sciformer generate run" in printed.out


def test_no_name_controls_the_terminal(capsys):
    for words in (["train", "a\x1b[31m\u202e.yaml"], ["train", "spins/ising-vit", "--tokens.\x1b]0;x=3"]):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "\\x1b" in error
        assert not {"\x1b", "\u202e"} & {*error}


def test_results_are_printed_without_control_characters(capsys):
    say("wrote r/\x1b[31m\u202e.html")
    assert capsys.readouterr().out == "wrote r/\\x1b[31m\\u202e.html\n"


@pytest.mark.parametrize("output", ["ascii", "closed", "full"])
def test_any_output_is_enough(output):
    line = f"{sys.executable} -m sciformer recipes"
    line += {"ascii": "", "closed": " >&-", "full": " >/dev/full"}[output]
    more = {"PYTHONIOENCODING": "ascii"} if output == "ascii" else {}
    done = subprocess.run(line, shell=True, capture_output=True, text=True, env=PLAIN | more, check=False, timeout=120)
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if output == "full" else 0)
    assert ("error: " in done.stderr) == (output == "full")


def test_messages_on_a_full_disk_stop_nothing():
    line = f"{sys.executable} -m sciformer train nothing.yaml 2>/dev/full"
    assert subprocess.run(line, shell=True, env=PLAIN, check=False, timeout=120).returncode == 2
    with LossyFile("/dev/full", "w") as file:
        assert file.write(b"step 1") == 6


def test_a_terminal_without_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert main(["--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_no_memory_is_a_fault_of_the_machine(capsys, monkeypatch):
    def full(console):
        torch.empty(1 << 60)

    monkeypatch.setattr("sciformer.cli.show.show_recipes", full)
    assert main(["recipes"]) == 2
    assert f"{4 << 60}" in capsys.readouterr().err


def test_names_that_the_disk_refuses(capsys, here):
    name = 300 * "a"
    for words in (["train", f"{name}.yaml"], ["predict", name, "b.txt"], ["train", "spins/ising-vit", "--run", name]):
        assert main(words) == 2
        assert "aaa" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["trian"], ["train", "text/gpt-chr"]])
def test_every_rank_says_why_it_ends(words, capsys, monkeypatch):
    """Under its name: torchrun stops the first rank when another one has ended, maybe before it could print."""
    monkeypatch.setenv("RANK", "1")
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("rank 1: error: ")
