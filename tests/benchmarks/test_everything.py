"""Stages side by side: in order, within their slots, after what they need; failures stop what builds on them."""

import os
import sys
from pathlib import Path

import pytest

import everything
from everything import STAGES, Stage


@pytest.fixture
def sit(tmp_path, monkeypatch, capsys):
    def call(stages, **scripts):
        (tmp_path / "benchmarks").mkdir(exist_ok=True)
        for name, code in scripts.items():
            (tmp_path / "benchmarks" / f"{name}.py").write_text(code)
        monkeypatch.setattr(everything, "ROOT", tmp_path)
        monkeypatch.setattr(everything, "KEPT", tmp_path / "kept")
        monkeypatch.setattr(everything, "STAGES", stages)
        monkeypatch.setattr(everything.time, "sleep", lambda seconds, sleep=everything.time.sleep: sleep(0.05))
        words = ["--data", "there", "--seconds", "20", "--slots", "3", "--out", str(tmp_path / "out")]
        monkeypatch.setattr(sys, "argv", ["everything.py", *words])
        everything.main()
        return capsys.readouterr().out

    return call


def test_stages_wait_for_what_they_need_and_run_once(sit, tmp_path):
    write = f"import sys; open(r'{tmp_path}/log', 'a').write(' '.join(sys.argv[1:]) + chr(10))"
    stages = {"second": Stage(3, "write.py two", ("first",)), "first": Stage(2, "write.py one --data {data}/x")}
    assert sit(stages, write=write).rstrip().endswith("not done:")
    assert (tmp_path / "log").read_text().splitlines() == ["one --data there/x --jobs 2", "two --jobs 3"]
    sit(stages, write=write)
    assert len((tmp_path / "log").read_text().splitlines()) == 2


WIDE = {"quick": Stage(1, "one.py quick"), "wide": Stage(3, "one.py wide", ("quick",))}
WIDE |= {"broad": Stage(2, "one.py broad"), "small": Stage(1, "one.py small")}
HEAVY = {"light": Stage(1, "one.py light"), "heavy": Stage(1, "one.py heavy", heavy=True)}
HEAVY |= {"light too": Stage(1, "one.py too")}


@pytest.mark.parametrize(("stages", "first"), [(WIDE, ["quick", "wide"]), (HEAVY, ["light", "heavy", "too"])])
def test_wide_stages_are_not_overtaken_and_heavy_ones_run_alone(sit, tmp_path, stages, first):
    code = f"import sys, time; name = sys.argv[1]; log = open(r'{tmp_path}/log', 'a', buffering=1)"
    code += "; log.write(name + chr(10)); time.sleep(0.3); log.write(name + chr(10))"
    sit(stages, one=code)
    said = (tmp_path / "log").read_text().split()
    assert said[: 2 * len(first)] == [name for name in first for _ in range(2)]


def test_a_stage_that_fails_holds_back_what_builds_on_it(sit):
    stages = {"bad": Stage(1, "bad.py"), "after": Stage(1, "good.py", ("bad",)), "good": Stage(1, "good.py")}
    said = sit(stages, bad="raise SystemExit('no such file')", good="")
    assert "FAILED bad" in said
    assert "no such file" in said
    assert said.rstrip().endswith("not done: bad after")


def test_what_is_under_way_ends_with_the_sitting(sit, tmp_path, monkeypatch):
    long = f"import os, time; open(r'{tmp_path}/pid', 'w').write(str(os.getpid())); time.sleep(60)"
    reap = everything.Sitting.reap

    def interrupted(self):
        reap(self)
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(everything.Sitting, "reap", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sit({"long": Stage(1, "long.py")}, long=long)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_every_stage_is_a_benchmark_that_exists_and_needs_another():
    root = Path(everything.__file__).parent
    for stage in STAGES.values():
        assert (root / stage.words.split()[0]).exists()
        assert set(stage.needs) <= set(STAGES)
