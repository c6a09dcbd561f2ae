"""Predictions in shards are those of one process, byte for byte, however often they were killed."""

import json
import os
import random
import shutil
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest

from sciformer.assembly import Assembly
from sciformer.cli.main import main
from sciformer.cluster.shards import (
    ShardFolder,
    Sharding,
    describe_numbers,
    find_inputs,
    merge_shards,
    predict_shards,
)
from sciformer.evaluation import blocks
from sciformer.evaluation.blocks import Block, Group, Share, divide
from sciformer.evaluation.predictions import write_predictions
from sciformer.files.seal import SealedFolder
from sciformer.run import Run
from tests.errors import refuses
from tests.files.test_tables import SUFFIXES, read
from tests.training.tiny import fate, go, image_recipe, start

SAMPLES = 157  # in 11 blocks of at most 16


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return Run(go(image_recipe(folder), folder / "run").path)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    made = []
    for number, count in enumerate((120, SAMPLES - 120)):
        made.append(tmp_path / f"new-{number}.npz")
        images = rng.normal(size=(count, 4, 4)).astype(np.float32)
        np.savez(made[-1], image=images, name=np.array([f"é {row}" for row in range(count)]), mass=np.arange(count) / 7)
    return made


def merge(folder, out):
    said = []
    count = merge_shards(folder, out, log=said.append)
    return count, said


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("count", [4, 13])  # also more shards than blocks
def test_all_shards_together_are_the_table_of_one_process(run, files, tmp_path, suffix, count):
    folder, sharding = tmp_path / "shards", Sharding(count, suffix)
    assert write_predictions(run, files, tmp_path / f"whole{suffix}") == SAMPLES
    for shard in random.Random(0).sample(range(count), count):
        predict_shards(run, files, folder, sharding, shard)
    assert len(list(folder.glob(f"*{suffix}"))) == count
    assert merge(folder, tmp_path / f"merged{suffix}") == (SAMPLES, [])
    if suffix == ".root":  # which has times and an id
        assert read(tmp_path / "merged.root") == read(tmp_path / "whole.root")
    else:
        assert (tmp_path / f"merged{suffix}").read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()
    rows = [sum(json.loads(path.read_text())["rows"]) for path in sorted(folder.glob("shard-*.json"))]
    assert len(rows) == count
    assert sum(rows) == SAMPLES
    assert max(rows) - min(rows) <= 2 * 16


def test_more_shards_than_samples(run, tmp_path):
    file, sharding = tmp_path / "new.npz", Sharding(7)
    np.savez(file, image=np.random.default_rng(1).normal(size=(3, 4, 4)).astype(np.float32))
    assert write_predictions(run, [file], tmp_path / "whole.parquet") == 3
    assert predict_shards(run, [file], tmp_path / "shards", sharding).missing() == []
    assert len(list((tmp_path / "shards").glob("*.parquet"))) == 7
    assert merge(tmp_path / "shards", tmp_path / "merged.parquet") == (3, [])
    assert (tmp_path / "merged.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_blocks_depend_only_on_the_number_of_samples(run):
    for sizes in ([1], [15], [16], [17, 0, 3], [1000], [100_000], [4096] * 1000, [3_000_000]):
        found = divide(run.assembly, SimpleNamespace(sizes=sizes))
        rows = [(block.piece, row) for block in found for row in (block.start, block.stop - 1)]
        assert rows == sorted(rows)
        assert sum(block.size for block in found) == sum(sizes)
        assert all(1 <= block.size <= 4096 for block in found)
        assert len(found) >= min(sum(sizes) / 16, 60)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 200])
def test_every_block_is_in_one_share(count):
    groups = [Group(["a"], 0, 10), Group(["b"], 10, 11), Group(["c"], 11, 1000), Group(["d"], 1000, 1003)]
    every = {group.stop: [Block(0, 16 * n, 16 * n + 16) for n in range(group.stop % 37)] for group in groups}
    found = []
    for share in (Share(number, count) for number in range(count)):
        taken = [(group.files, share.select(every[group.stop], group, 1003)) for group in groups]
        assert all(share.touches(group, 1003) for group, (_, some) in zip(groups, taken) if some)
        assert share.covered(groups[-1], 1003) == 1
        found += [(files, block) for files, some in taken for block in some]
    assert found == [(group.files, block) for group in groups for block in every[group.stop]]


def test_files_are_opened_in_groups(run, files, tmp_path, monkeypatch):
    """As those of readers that can read every file by itself."""
    opened = []
    groups = [Group([file], number, number + 1) for number, file in enumerate(files)]
    monkeypatch.setattr(blocks, "group_files", lambda assembly, names: groups)
    source = Assembly.source
    monkeypatch.setattr(
        Assembly, "source", lambda made, names, **keys: opened.append(list(names)) or source(made, names, **keys)
    )
    write_predictions(run, files, tmp_path / "whole.parquet")
    assert opened == [[files[0]], [files[1]]]
    folder, sharding = tmp_path / "shards", Sharding(4)
    predict_shards(run, files, folder, sharding, 1)
    assert opened[2:] == [[files[0]]]
    predict_shards(run, files, folder, sharding)
    assert opened[3:] == [[files[0]], [files[1]]]
    merge(folder, tmp_path / "merged.parquet")
    assert (tmp_path / "merged.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_only_missing_shards_are_predicted(run, files, tmp_path, capsys):
    folder, sharding = tmp_path / "shards", Sharding(6)
    predict_shards(run, files, folder, sharding)
    made = ShardFolder(folder)
    times = [made.file(shard).stat().st_mtime_ns for shard in range(6)]
    made.file(1).write_bytes(made.file(1).read_bytes()[:-9])  # a half of a file
    data = bytearray(made.file(2).read_bytes())
    data[len(data) // 2] ^= 1
    made.file(2).write_bytes(data)
    made.file(3).unlink()
    made.file(4).with_suffix(".json").unlink()  # killed between the two files
    (folder / ".shard-00004-of-00006.parquet.1.partial").write_text("")
    assert made.missing() == [1, 3, 4]
    with refuses("1-4", file=folder):  # also those that are damaged
        merge(folder, tmp_path / "merged.parquet")
    assert main(["status", str(folder)]) == 0
    assert "3 of 6 shards" in capsys.readouterr().out
    said = []
    predict_shards(run, files, folder, sharding, log=said.append)
    assert [line.startswith("wrote") for line in said] == [False, True, True, True, True, False]
    assert [made.file(shard).stat().st_mtime_ns == times[shard] for shard in range(6)] == [True, *[False] * 4, True]
    assert not list(folder.glob(".*"))
    write_predictions(run, files, tmp_path / "whole.parquet")
    merge(folder, tmp_path / "merged.parquet")
    assert (tmp_path / "merged.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_killed_at_random_instants(run, files, tmp_path):
    folder, sharding, rng = tmp_path / "shards", Sharding(5), random.Random(0)
    began = time.monotonic()
    predict_shards(run, files, tmp_path / "timed", sharding)
    seconds = time.monotonic() - began
    kills = 0
    while kills < 6:
        child = start(lambda: predict_shards(run, files, folder, sharding))
        time.sleep(rng.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        killed = fate(child) == -signal.SIGKILL
        kills += killed
        if not killed:  # it was done: start over
            shutil.rmtree(folder)
    predict_shards(run, files, folder, sharding)
    write_predictions(run, files, tmp_path / "whole.parquet")
    merge(folder, tmp_path / "merged.parquet")
    assert (tmp_path / "merged.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_notes_on_the_data_are_those_of_one_process(run, tmp_path, capsys):
    rng = np.random.default_rng(2)
    images = rng.normal(size=(200, 4, 4)).astype(np.float32)
    images += 25 * (np.arange(200) > 60)[:, None, None]  # a drift
    images[150, 0] = -999  # codes of missing values, in one shard
    file = tmp_path / "odd.npz"
    np.savez(file, image=images)
    write_predictions(run, [file], tmp_path / "whole.npz", show=True, accept_drift=True)
    expected = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    predict_shards(run, [file], tmp_path / "shards", Sharding(5, ".npz"), accept_drift=True)
    assert len(expected) >= 2
    assert merge(tmp_path / "shards", tmp_path / "merged.npz") == (200, expected)
    assert (tmp_path / "merged.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


# What is refused


@pytest.fixture
def begun(run, files, tmp_path):
    predict_shards(run, files, tmp_path / "shards", Sharding(4), 0)
    return tmp_path / "shards"


def test_changed_inputs_are_refused(run, files, begun):
    os.utime(files[0], ns=(1, 1))  # only another time
    predict_shards(run, files, begun, Sharding(4), 1)
    arrays = dict(np.load(files[0]))
    for images in (arrays["image"] + np.float32(0.01), arrays["image"].astype(np.float64)):  # of the same size or not
        np.savez(files[0], **arrays | {"image": images})
        with refuses(file=files[0], hint="--out"):
            predict_shards(run, files, begun, Sharding(4), 2)


def test_missing_inputs_are_refused_before_anything_is_written(run, files, tmp_path):
    with refuses("nowhere.npz"):
        predict_shards(run, [*files, tmp_path / "nowhere.npz"], tmp_path / "shards", Sharding(4), 1)
    assert not (tmp_path / "shards").exists()


def test_the_folder_of_shards_may_lie_among_the_inputs(files, tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/old.npz").write_text("")
    paths = find_inputs([tmp_path])
    assert [*files] == [path for path in paths if tmp_path / "shards" not in path.parents]
    assert find_inputs([f"dogs:{tmp_path}/new-*.npz"]) == files


def test_other_inputs_are_refused(run, files, begun):
    for others in (files[:1], files[::-1]):
        with refuses(file=begun, hint="--out"):
            predict_shards(run, others, begun, Sharding(4), 1)


@pytest.mark.parametrize("sharding", [Sharding(5), Sharding(4, ".csv")])
def test_another_division_is_refused(run, files, begun, sharding):
    with refuses(file=begun):
        predict_shards(run, files, begun, sharding, 1)


def test_another_model_is_refused(run, files, begun, tmp_path):
    other = Run(go(image_recipe(tmp_path, train__seed=1), tmp_path / "other").path)
    with refuses(run.path, file=begun):
        predict_shards(other, files, begun, Sharding(4), 1)
    renamed = Run(run.path, columns={"label": "mass"})
    with refuses("--map", file=begun):
        predict_shards(renamed, files, begun, Sharding(4), 1)


def test_a_model_that_changes_meanwhile_is_refused(run, files, begun, monkeypatch):
    hashes, calls = SealedFolder.hashes, []

    def changing(sealed, names):
        calls.append(names)
        return hashes(sealed, names) | ({"model/weights.safetensors": "new"} if len(calls) > 1 else {})

    monkeypatch.setattr(SealedFolder, "hashes", changing)
    with refuses(file=run.path):
        predict_shards(run, files, begun, Sharding(4), 1)
    assert ShardFolder(begun).missing() == [1, 2, 3]


def test_shards_of_another_plan_are_predicted_again(run, files, begun):
    (begun / "shards.json").unlink()
    os.utime(files[0], ns=(1, 1))
    predict_shards(run, files, begun, Sharding(4), 1)
    assert ShardFolder(begun).missing() == [0, 2, 3]


def test_a_shard_is_predicted_by_one_process_at_a_time(run, files, begun):
    reading, ring = os.pipe()

    def hold():
        with ShardFolder(begun).lock("shard-00002", wait=False):
            os.write(ring, b"!")
            time.sleep(30)

    child = start(hold)
    os.read(reading, 1)
    with refuses("shard 2", key="--shard"):
        predict_shards(run, files, begun, Sharding(4), 2)
    assert predict_shards(run, files, begun, Sharding(4)).missing() == [2]  # the others
    os.kill(child, signal.SIGKILL)
    fate(child)
    assert predict_shards(run, files, begun, Sharding(4)).missing() == []


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["--shards", "4", "--shard", "4"], "0 to 3"),
        (["--shards", "4", "--shard", "-1"], "0 to 3"),
        (["--shards", "0"], "--shards"),
        (["--shard", "1"], "--shards"),
        (["--shards", "4", "--format", "doc"], "parquet, root"),
        (["--shards", "4", "--out", "a.parquet"], "a folder"),
        (["--shards", "4", "--out", "predictions.csv"], "a folder"),
        (["--shards", "4", "--overwrite"], "--overwrite"),
        (["--merge", "nowhere"], "nowhere"),
        (["--merge", "shards", "--out", "merged.csv"], ".parquet"),
        (["--merge", "shards", "--out", "merged.parquet"], "1-3"),
        (["--merge", "shards", "--shards", "4"], "--merge"),
    ],
)
def test_impossible_options_are_refused(run, files, begun, tmp_path, here, capsys, words, key):
    target = [] if words[0] == "--merge" else [str(run.path), *map(str, files)]
    out = [] if "--out" in words else ["--out", "elsewhere"]
    assert main(["predict", *target, *words, *out]) == 2
    assert key in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "elsewhere").exists()


def test_from_the_command_line(run, files, here, capsys):
    line = ["predict", str(run.path), *map(str, files), "--shards", "3", "--out", "scores/", "--quiet"]
    assert main([*line, "--shard", "1"]) == 0
    assert capsys.readouterr().out == "scores: 2 shards of 3 missing\n"
    assert main(["status", "scores", "--json"]) == 0
    (state,) = json.loads(capsys.readouterr().out)
    assert (state["state"], state["shards"], state["missing"]) == ("incomplete", 3, [0, 2])
    job = ["submit", str(run.path), *map(str, files), "--predict", "--shards", "3", "--out", "scores", "--time", "1:00"]
    assert main(job) == 0
    assert "#SBATCH --array=0,2\n" in capsys.readouterr().out
    assert main([*job, "--shards=4"]) == 2
    assert main(line) == 0
    assert main(job) == 2
    assert main(["predict", "--merge", "scores", "--out", "merged.parquet"]) == 0
    assert capsys.readouterr().out.endswith(f"wrote {SAMPLES} predictions to merged.parquet\n")
    assert main(["predict", "--merge", "scores", "--out", "merged.parquet"]) == 2
    assert main(["predict", "--merge", "scores", "--out", "merged.parquet", "--overwrite"]) == 0
    assert main(["predict"]) == 2
    assert main(["predict", str(run.path)]) == 2


def test_numbers_as_schedulers_write_them():
    assert describe_numbers([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert describe_numbers([]) == ""
