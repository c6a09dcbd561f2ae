"""ASTROMER 1: our numbers are those of a plain forward pass, its weights become a run, and nothing leaks."""

import numpy as np
import pytest
import torch

from sciformer.cli.main import app
from sciformer.cli.terminal import RECIPE_CHANGES
from sciformer.data.batch import StreamView
from sciformer.interop import import_model
from sciformer.nn import Ragged
from sciformer.run import Run
from tests.errors import refuses
from tests.paths import SHARED

DATA = SHARED / "lightcurves"
WEIGHTS, CURVES = DATA / "astromer1_macho_weights.npz", DATA / "asas_variables.parquet"
there = pytest.mark.skipif(not WEIGHTS.exists(), reason="no shared data beside the repository")
ENCODER, LAST = "layer_with_weights-0", "layer_with_weights-1"
PARAMETERS = 661_505


def shapes(dim, hidden, depth):
    found = {f"{ENCODER}/inp_transform": (1, dim), f"{LAST}/reg_layer": (dim, 1)}
    for i in range(depth):
        block = f"{ENCODER}/enc_layers/{i}"
        found |= {f"{block}/mha/{name}": (dim, dim) for name in ("wq", "wk", "wv", "dense")}
        found[f"{block}/ffn/layer_with_weights-0"] = (dim, hidden)
        found[f"{block}/ffn/layer_with_weights-1"] = (hidden, dim)
    arrays = {f"{name}/kernel": shape for name, shape in found.items()}
    arrays |= {f"{name}/bias": shape[1:] for name, shape in found.items()}
    norms = [f"{ENCODER}/enc_layers/{i}/layernorm{k}" for i in range(depth) for k in (1, 2)] + [f"{LAST}/bn_0"]
    return arrays | {f"{norm}/{name}": (dim,) for norm in norms for name in ("gamma", "beta")}


@pytest.fixture
def made(tmp_path):
    """A small model of random numbers."""
    rng = np.random.default_rng(3)
    arrays = {name: 0.4 * rng.normal(size=shape) for name, shape in shapes(16, 8, 2).items()}
    np.savez(tmp_path / "small.npz", **{name: array.astype(np.float32) for name, array in arrays.items()})
    return tmp_path / "small.npz"


def plain(weights, times, values, heads=4):
    """The published equations without a mask, in double precision."""

    def dense(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

    place = np.arange(len(weights[f"{ENCODER}/inp_transform/bias"]))
    angle = times[..., None] * 10000.0 ** (-2 * place / len(place))
    x = dense(values[..., None], f"{ENCODER}/inp_transform") + np.where(place % 2, np.cos(angle), np.sin(angle))
    for i in range(2):
        block = f"{ENCODER}/enc_layers/{i}"
        q, k, v = (
            dense(x, f"{block}/mha/w{one}").reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for one in ("q", "k", "v")
        )
        score = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        score = np.exp(score - score.max(-1, keepdims=True))
        mixed = (score / score.sum(-1, keepdims=True)) @ v
        x = norm(dense(mixed.swapaxes(1, 2).reshape(x.shape), f"{block}/mha/dense"), f"{block}/layernorm1")
        inner = np.tanh(dense(x, f"{block}/ffn/layer_with_weights-0"))
        x = norm(dense(inner, f"{block}/ffn/layer_with_weights-1"), f"{block}/layernorm2")
    return dense(norm(x, f"{LAST}/bn_0"), f"{LAST}/reg_layer")[..., 0]


def answers(model, times, values, valid=None, bias=None, hidden=None):
    """What our network says of each point."""
    columns = {"features": values[..., None], "at": times}
    if hidden is not None:
        columns["hidden"] = hidden
    view = StreamView(columns, valid)
    more = {} if bias is None else {"bias": bias[:, None]}
    with torch.no_grad():
        return model.readout.predict(model.run(model.embed(view), view, **more))["value"]


def arrays(path):
    with np.load(path) as file:
        return {name: file[name].astype(np.float64) for name in file.files}


def test_a_plain_forward_pass_is_reproduced_in_both_layouts(made, tmp_path):
    model = import_model(made, tmp_path / "run").model.double().eval()
    rng, lengths = np.random.default_rng(0), [9, 1, 14]
    times, values = 300 * rng.normal(size=(3, 14)), rng.normal(size=(3, 14))
    ragged = Ragged(lengths)
    padded = answers(model, torch.tensor(times), torch.tensor(values), ragged.valid)
    flat = [torch.tensor(part)[ragged.valid] for part in (times, values)]
    packed = answers(model, *flat, ragged)
    torch.testing.assert_close(ragged.flatten(padded), packed)
    for i, n in enumerate(lengths):
        expected = plain(arrays(made), times[i : i + 1, :n], values[i : i + 1, :n])[0]
        np.testing.assert_allclose(padded[i, :n], expected, atol=1e-5)


def test_it_becomes_a_run_by_the_verb(made, tmp_path, capsys):
    RECIPE_CHANGES.clear()  # of a command line that another test ran
    with pytest.raises(SystemExit):
        app(["import", str(made), "--run", str(tmp_path / "run")], exit_on_error=False)
    run = Run(tmp_path / "run")
    count = sum(array.size for array in arrays(made).values())
    assert run.about["parameters"] == count + 16  # and the vector of a hidden point
    assert (run.recipe.model.residual, run.recipe.model.position, run.recipe.tokens.window) == (False, "unpaired", 200)
    said = capsys.readouterr()
    assert "encoder of 2 blocks of width 16" in said.out
    assert "--model.heads" in said.err


def test_a_hidden_point_is_one_at_the_mean(made, tmp_path):
    model = import_model(made, tmp_path / "run").model.eval()
    times, values = torch.randn(2, 6) * 30, torch.randn(2, 6)
    hidden = torch.rand(2, 6) < 0.5
    found = answers(model, times, values, hidden=hidden)
    torch.testing.assert_close(found, answers(model, times, values.masked_fill(hidden, 0)))
    torch.testing.assert_close(found, answers(model, times, torch.where(hidden, 1e3, values), hidden=hidden))


@pytest.mark.parametrize(
    ("change", "mentions"),
    [
        (lambda whole: {"a": np.zeros(3)}, ("ASTROMER 1", " a")),
        (lambda whole: whole | {"extra": np.zeros(3)}, (" extra",)),
        (lambda whole: {name: array for name, array in whole.items() if "bn_0" not in name}, ("bn_0/gamma",)),
        (lambda whole: {"a": np.array([{}], object)}, ()),
        (None, ("NumPy file",)),
    ],
)
def test_mistakes_are_answered(made, tmp_path, change, mentions):
    wrong = tmp_path / "wrong.npz"
    if change is None:
        wrong.write_bytes(made.read_bytes()[:200])
    else:
        np.savez(wrong, **change({name: array.astype(np.float32) for name, array in arrays(made).items()}))
    with refuses(*mentions, file=wrong):
        import_model(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def curves():
    """200 points of each of 40 curves, drawn at random, times and magnitudes about their means; and half the points."""
    pq = pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(CURVES, columns=["time", "mag"]).to_pydict()
    rng, order = np.random.default_rng(0), np.random.default_rng(0).permutation(len(table["time"]))
    rows = [row for row in order if len(table["time"][row]) >= 200][:40]
    times, values = (np.array([table[name][row][:200] for row in rows]) for name in ("time", "mag"))
    masked = rng.random(times.shape) < 0.5
    return times - times.mean(1, keepdims=True), values - values.mean(1, keepdims=True), masked


@there
def test_the_published_weights_give_the_published_answers(tmp_path):
    model = import_model(WEIGHTS, tmp_path / "run").model.eval()
    weights = arrays(WEIGHTS)
    assert sum(array.size for array in weights.values()) == PARAMETERS
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS + 256
    times, values, _ = curves()
    at, value = torch.tensor(times), torch.tensor(values, dtype=torch.float32)
    found = answers(model, at, value)
    np.testing.assert_allclose(found, plain(weights, times, values), atol=2e-4)  # float32 of ours
    model.double()
    found = answers(model, at, value.double())
    np.testing.assert_allclose(found, plain(weights, times, value.double().numpy()), atol=1e-5)


@there
def test_masked_points_leak_as_published_and_are_unknown_once_removed(tmp_path):
    """The check values of the data: about 0.03 with the magnitudes left in, the scatter (0.475) with them removed."""
    model = import_model(WEIGHTS, tmp_path / "run").model.double().eval()
    times, values, masked = curves()
    at, value, hidden = torch.tensor(times), torch.tensor(values), torch.tensor(masked)

    def rmse(answer):
        return (answer - value)[hidden].square().mean().sqrt().item()

    # As published: the magnitudes stay, and scores from or to a masked point get 1 more.
    raised = (hidden[:, :, None] | hidden[:, None]).double()
    scatter = rmse(torch.zeros_like(value))
    assert rmse(answers(model, at, value, bias=raised)) == pytest.approx(0.02, abs=0.02)
    assert rmse(answers(model, at, value)) < 0.1
    for removed in (answers(model, at, value, hidden=hidden), answers(model, at, value * ~hidden, bias=raised)):
        assert rmse(removed) == pytest.approx(scatter, rel=0.02)
        assert rmse(removed) == pytest.approx(0.475, abs=0.02)
