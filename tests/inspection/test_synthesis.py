"""The attention to each word while a sample is made, and contact sheets."""

import numpy as np
import pytest

from sciformer.cli.main import main
from sciformer.generation.samples import generate_samples
from sciformer.inspection.synthesis import draw_contact_sheet, draw_synthesis, watch_synthesis
from tests.errors import refuses
from tests.generation.test_samples import WAYS, make


@pytest.fixture(scope="module", params=WAYS)
def trained(request, tmp_path_factory):
    way = request.param
    return make(way, tmp_path_factory.mktemp(way) / "run"), WAYS[way][2], way


def test_each_patch_attends_to_the_words(trained):
    run, options, way = trained
    found = watch_synthesis(run, "a red disc", seed=3, **options)
    assert found.words == ["a", "red", "disc"]
    assert found.maps.shape == (len(found.steps), 16, 3)
    known = np.isfinite(found.maps).all(-1)
    np.testing.assert_allclose(found.maps[known].sum(-1), 1, rtol=1e-4)  # other words there are none
    assert known[-1].all()
    assert known.sum(1).tolist() == (found.steps if way == "codes" else [16] * len(found.steps))
    assert found.steps[-1] == (16 if way == "codes" else 3)
    last = found.tokens.invert(found.streams[-1])["image"]
    assert np.array_equal(last, run.generate(["a red disc"], seed=3, **options)[0])
    figure = draw_synthesis(found)
    assert len(figure.axes) == 4 * len(found.steps)
    figure.draw_without_rendering()


def test_without_words_there_is_nothing_to_attend_to(trained):
    with refuses(key="--prompt"):
        watch_synthesis(trained[0], "", **trained[1])


@pytest.mark.parametrize(("prompts", "number", "panels"), [(["a bar", "a disc"], 3, 6), (["a bar"] * 5, 1, 5)])
def test_a_contact_sheet_shows_all(trained, prompts, number, panels):
    run, options, _ = trained
    found = generate_samples(run, prompts, number, seed=0, **options)
    figure = draw_contact_sheet(run.assembly.tokens["target"], found, prompts)
    assert sum(axes.axison for axes in figure.axes) == panels
    titles = [axes.get_title("left") for axes in figure.axes if axes.get_title("left")]
    assert titles == prompts


def test_the_command_writes_pictures(trained, tmp_path, capsys):
    run, options, _ = trained
    steps = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    line = ["generate", str(run.path), "--prompt", "a small red disc", "--number", "3", "--seed", "0", *steps]
    figure = tmp_path / "attention.png"
    assert main([*line, "--out", str(tmp_path / "out"), "--attention", str(figure)]) == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [*(f"a-small-red-disc-00{n}.png" for n in (1, 2, 3)), "contact-sheet.png"]
    assert figure.stat().st_size > 1000
    (tmp_path / "prompts.txt").write_text("a red disc\na blue bar\n")
    line = ["generate", str(run.path), "--file", str(tmp_path / "prompts.txt"), "--seed", "0", *steps]
    assert main([*line, "--out", str(tmp_path / "many")]) == 0
    names = sorted(path.name for path in (tmp_path / "many").iterdir())
    assert names == ["1-a-red-disc-001.png", "2-a-blue-bar-001.png", "contact-sheet.png"]
    capsys.readouterr()
    for wrong in (["--beam", "2"], ["--length", "9"], ["--prompt", "a red dsc"], ["--repetition", "2"]):
        assert main(["generate", str(run.path), *wrong]) == 2
        assert wrong[1] in capsys.readouterr().err or wrong[0] in wrong


def test_figures_of_the_inspection(trained, tmp_path):
    run, _, _ = trained
    assert main(["inspect", str(run.path), "--out", str(tmp_path), "--samples", "1"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["generated-1.png"]
