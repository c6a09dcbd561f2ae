"""The Particle Transformer of weaver: our numbers are theirs, and its checkpoints become runs."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sciformer.assembly import Assembly
from sciformer.data.batch import Batch, StreamView
from sciformer.domains.jets.interop.weaver import CLASSES, canonical_names, convert_transformer, import_weaver
from sciformer.interop import import_model
from sciformer.interop.config import Config
from sciformer.interop.importing import imported_recipe
from sciformer.models.base import parameters
from sciformer.nn import Ragged
from sciformer.recipe import Recipe
from tests.domains.jets.interop.weaver_keys import logits, made, network, sections, shapes
from tests.domains.jets.jets_table import jets, write_root
from tests.errors import refuses
from tests.paths import SHARED

PARITY = SHARED / "jets/part_parity.npz"
PARAMETERS = {"part_full17": 2_143_486, "part_kin7": 2_142_166, "part_small": 12_318, "part_plain": 2_133_918}
PARAMETERS |= {"part_v2": 2_789_806, "part_v3": 2_770_278}
RECIPES = {"part": "part_full17", "part-kin": "part_kin7", "part-plain": "part_plain", "part-v2": "part_v2"}
RECIPES["part-v3"] = "part_v3"


def converted(tensors):
    return convert_transformer(canonical_names(tensors), Config({}, "a test"), {})


@pytest.mark.skipif(not PARITY.exists(), reason="no shared data beside the repository")
@pytest.mark.parametrize("variant", PARAMETERS)
def test_every_variant_is_reproduced(variant):
    fixture = np.load(PARITY)
    features, vectors, mask = (fixture[name] for name in ("features", "vectors", "mask"))
    keys, config = (json.loads(str(fixture[f"{name}_{variant}"])) for name in ("keys", "cfg"))
    sizes = ("input_dim", "embed_dims", "pair_embed_dims", "num_heads", "num_layers", "num_cls_layers", "num_classes")
    assert shapes(*(config[key] for key in sizes), config.get("version", 1)) == keys  # what other tests build on
    exact = float(torch.finfo(torch.float64).eps)  # of their RMSNorm
    more = {"norm_epsilon": exact} if variant == "part_v3" else {}
    model, order, _ = network(converted(made(keys)), **more)
    assert parameters(model) == PARAMETERS[variant]
    x = torch.from_numpy(features).transpose(1, 2)
    x = x[..., fixture["kin_index"]] if config["input_dim"] == 7 else x
    v, valid = torch.from_numpy(vectors).transpose(1, 2), torch.from_numpy(mask[:, 0] > 0)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        model = model.to(dtype)
        padded = StreamView({"features": x.to(dtype), "vector": v.to(dtype)}, valid)
        packed = StreamView({name: column[valid] for name, column in padded.columns.items()}, Ragged(valid.sum(1)))
        for view in (padded, packed):
            found = logits(model, view)[:, order].numpy()
            assert np.abs(found - fixture[f"logits64_{variant}"]).max() < tolerance


@pytest.mark.parametrize("name", RECIPES)
def test_a_checkpoint_gives_the_model_of_the_recipe(name):
    """What is told from names and shapes is what the recipe says, and has the size of the original."""
    options = {"part-v2": {"version": 2}, "part-v3": {"version": 3}, "part-plain": {"pair_widths": None}}
    size = {"widths": (128, 512, 128), "pair_widths": (64, 64, 64), "heads": 8, "depth": 8, "asking": 2}
    size |= {"inputs": 7 if name == "part-kin" else 17, **options.get(name, {})}
    tensors = {key: torch.empty(shape) for key, shape in shapes(**size).items()}
    found = converted(tensors)
    ours = Recipe.load(f"jets/{name}").change({"data.kind": "arrays"})
    state = {"classes": list(CLASSES), "counts": [1] * 10}
    with torch.device("meta"):
        built = Assembly.from_state(ours, {"tokens": {"tokens": {}}, "objective": state}).network()
    assert parameters(built) == PARAMETERS[RECIPES[name]]
    theirs = imported_recipe("a test", "", sections(found), {})
    unused = {"pair_widths"} if name == "part-plain" else set()
    assert theirs.model.model_dump(exclude={"norm_epsilon"}) == ours.model.model_dump(exclude={"norm_epsilon"})
    assert theirs.tokens.model_dump(exclude=unused) == ours.tokens.model_dump(exclude=unused)
    assert (ours.model.norm_epsilon or 0) == pytest.approx(theirs.model.norm_epsilon or 0)


def write(path, spelling="new", prefix="mod.", **size):
    tensors = made(shapes(**size))
    if spelling == "old":
        tensors = {name.replace("in_proj.", "in_proj_"): tensor for name, tensor in tensors.items()}
    torch.save({prefix + name: tensor for name, tensor in tensors.items()}, path)
    return path


@pytest.mark.parametrize("version", [1, 2, 3])
def test_both_spellings_are_the_same_model(tmp_path, version):
    old = import_weaver(write(tmp_path / "old.pt", "old", version=version))
    new = import_weaver(write(tmp_path / "new.pt", "new", "", version=version))
    assert old.weights.keys() == new.weights.keys()
    for name, weight in old.weights.items():
        assert torch.equal(weight, new.weights[name]), name


def test_a_checkpoint_becomes_a_run_that_predicts(tmp_path):
    heard = []
    run = import_model(write(tmp_path / "ParT_full.pt", "old"), tmp_path / "run", {"data.kind": "arrays"}, heard.append)
    assert "use_pre_activation_pair" in heard[0]
    assert run.recipe.tokens.pair_last
    assert run.assembly.objective.classes == sorted(CLASSES)
    table = jets((6, 1, 9, 0, 14))
    answers = run.predict(table)
    assert answers["probabilities"].shape == (5, 10)
    assert np.isfinite(answers["probabilities"]).all()
    model, order, assembly = network(converted(made(shapes())))
    stream = assembly.tokens["tokens"].normalise(assembly.tokens["tokens"].tokenize(table))
    plainly = logits(model, Batch({"tokens": stream}).inputs().stream).softmax(-1).numpy()
    np.testing.assert_allclose(answers["probabilities"], plainly, atol=1e-6)
    official = plainly[:, order].argmax(1)
    assert answers["class"].tolist() == [CLASSES[number] for number in official]


@pytest.mark.parametrize("labelled", [True, False])
def test_it_reads_files_with_the_branches_of_jetclass(tmp_path, labelled):
    table = jets((6, 3, 9, 2, 14))
    labels = {f"label_{name}": np.arange(5) % 10 == place for place, name in enumerate(CLASSES)} if labelled else {}
    write_root(tmp_path / "jets.root", table | labels)
    run = import_model(write(tmp_path / "ParT_full.pt"), tmp_path / "run")
    answers = run.predict(tmp_path / "jets.root")
    np.testing.assert_allclose(answers["probabilities"], run.predict(table)["probabilities"], atol=1e-5)
    if labelled:
        assert answers["label"].tolist() == list(CLASSES[:5])
        assert set(run.evaluate(files=[tmp_path / "jets.root"]).scores) >= {"accuracy", "auc"}


def test_the_head_is_in_the_order_of_the_names(tmp_path):
    found = import_weaver(write(tmp_path / "a.pt"))
    theirs, ours = made(shapes())["fc.0.weight"], found.weights["heads.class.layer.1.weight"]
    for place, name in enumerate(sorted(CLASSES)):
        assert torch.equal(ours[place], theirs[CLASSES.index(name)])
    few = import_weaver(write(tmp_path / "b.pt", classes=2))
    assert few.state["objective"]["classes"] == ["0", "1"]
    assert torch.equal(few.weights["heads.class.layer.1.bias"], made(shapes(classes=2))["fc.0.bias"])


def test_what_weights_do_not_tell_is_an_option(tmp_path):
    path = write(tmp_path / "a.pt")
    assert not import_weaver(path, {"tokens.pair_last": False}).recipe.tokens.pair_last
    assert not import_weaver(path, {"tokens.pair_last": False}).notes
    assert not import_weaver(write(tmp_path / "b.pt", pair_widths=None)).notes
    with refuses("9", "17 (full)", key="tokens.features", file=tmp_path / "c.pt", hint="--tokens.features"):
        import_weaver(write(tmp_path / "c.pt", inputs=9))
    names = ["log_pt", "deta", *(f"part_x{i}" for i in range(7))]
    nine = import_weaver(tmp_path / "c.pt", {"tokens.features": names})
    assert len(nine.recipe.tokens.feature_list) == 9


def test_weights_in_safetensors_are_recognised(tmp_path):
    save_file(torch.load(write(tmp_path / "a.pt"), weights_only=True), tmp_path / "a.safetensors")
    runs = [import_model(tmp_path / f"a.{end}", tmp_path / end) for end in ("pt", "safetensors")]
    first, second = (run.predict(jets((6, 3)))["probabilities"] for run in runs)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("way", ["classes", "data.classes"])
def test_classes_are_named_in_the_order_of_the_outputs(tmp_path, way):
    path, names = write(tmp_path / "a.pt", classes=3), ["top", "W", "QCD"]
    bare = import_model(path, tmp_path / "bare")
    assert bare.assembly.objective.classes == ["0", "1", "2"]
    given = {"classes": names} if way == "classes" else {"changes": {way: {name: f"is_{name}" for name in names}}}
    run = import_model(path, tmp_path / "run", **given)
    assert run.assembly.objective.classes == sorted(names)
    table = jets((6, 3, 9))
    numbers, named = bare.predict(table), run.predict(table)
    assert named["class"].tolist() == [names[int(number)] for number in numbers["class"]]
    with refuses("3 different names", key="--classes"):
        import_model(path, tmp_path / "few", classes=["a", "b"])
    with refuses("3 different names", key="data.classes"):
        import_model(path, tmp_path / "few", {"data.classes": {"a": "is_a"}})


def test_another_number_of_features_is_named(tmp_path):
    with refuses("17", "7", key="tokens.features", file=tmp_path / "a.pt"):
        import_model(write(tmp_path / "a.pt"), tmp_path / "run", {"tokens.features": "kin"})


def test_other_files_are_refused(tmp_path):
    with refuses("nothing.pt", "not exist", file=tmp_path / "nothing.pt"):
        import_model(tmp_path / "nothing.pt", tmp_path / "run")
    torch.save({"mod.something": torch.zeros(3)}, tmp_path / "a.pt")
    torch.save({"epoch": 3}, tmp_path / "b.pt")
    torch.save(made(shapes()) | {"x.y": torch.zeros(1)}, tmp_path / "c.pt")
    for name, mention in (("a", "something"), ("b", "dict"), ("c", "x.y")):
        with refuses(mention, file=tmp_path / f"{name}.pt"):
            import_model(tmp_path / f"{name}.pt", tmp_path / "run")
    assert not (tmp_path / "run").exists()
