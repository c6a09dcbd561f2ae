"""Wave functions: energies against matrices, gradients, symmetries, Markov chains, trainings, and wrong recipes."""

import json
import math

import numpy as np
import pytest
import torch

from sciformer.assembly import Assembly
from sciformer.data.prepare import prepare
from sciformer.data.random import SampleRandom
from sciformer.domains.spins.quantum.exact import lowest, matrix
from sciformer.domains.spins.quantum.hamiltonian import bits
from sciformer.domains.spins.quantum.metropolis import metropolis
from sciformer.objectives.base import Carried
from sciformer.recipe import Recipe
from sciformer.run import Run, train
from sciformer.training.natural import fisher_rows
from tests.errors import refuses
from tests.training.tiny import assert_same, left

SMALL = {"data.size": 6, "model.dim": 8, "model.depth": 1, "model.heads": 2, "train.device": "cpu", "train.steps": 4}
SMALL |= {"train.evaluate_every": 4, "train.log_every": 1, "train.warmup": 0}
CHAINS = {"data.sampling": "chains", "data.chains": 48, "objective.measurements": 8, "objective.burn_in": 4}
CASES = {
    "chain": {},
    "next nearest": {"data.j2": 0.8, "objective.marshall": False, "objective.symmetry": []},
    "translation": {"data.size": 8, "objective.symmetry": ["translation"]},
    "flip": {"data.size": 8, "objective.symmetry": ["flip"]},
    "field": {"data.interaction": "ising", "data.j2": 0, "objective.marshall": False},
    "factored": {"model.attention": "factored", "objective.hidden": 4},
    "single sites": {"tokens.patch": 1},
}


def recipe(**changes):
    return Recipe.load("spins/wavefunction", {**SMALL, **changes})


def assembled(changes):
    """A network with random weights and the inputs of all states."""
    assembly = Assembly.open(recipe(**changes))
    torch.manual_seed(3)
    model = assembly.network()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    data = assembly.dataset("train")
    ids = np.random.default_rng(0).permutation(len(data))
    made = prepare(data.batch(ids), assembly.tokens, assembly.objective, SampleRandom(0, 0, ids), training=True)
    return assembly, model, made.inputs(), len(ids)


def amplitudes(assembly, model, keys):
    """psi (n,) with the Marshall sign, from predictions of single states."""
    objective = assembly.objective
    wave = objective.log_psi(model, torch.as_tensor(keys))
    own = objective.hamiltonian
    sign = np.ones(len(keys))
    if objective.marshall and own.conserves:
        sign = (-1.0) ** bits(keys, own.sites)[:, own.sublattice == 0].sum(1)
    return sign * torch.polar(wave[:, 0].exp(), wave[:, 1]).numpy()


@pytest.mark.parametrize("case", CASES)
def test_the_energy_is_that_of_the_matrix(case):
    assembly, model, inputs, count = assembled(CASES[case])
    own = assembly.objective.hamiltonian
    keys = own.states()
    psi = amplitudes(assembly, model, keys)
    full = matrix(own, keys).toarray()
    exact = (psi.conj() @ full @ psi).real / (psi.conj() @ psi).real
    loss, outputs = assembly.objective.step(model, inputs, True)
    assert float(loss.detach()) / count == pytest.approx(exact / own.sites, rel=1e-10)
    found = {name: value.detach().numpy() for name, value in outputs.items()}
    assert found["probability"].sum() == pytest.approx(1)
    order = np.searchsorted(keys, inputs.samples["state"].numpy())
    np.testing.assert_allclose(found["probability"], (np.abs(psi) ** 2 / (np.abs(psi) ** 2).sum())[order], rtol=1e-9)
    local = (full @ psi / psi)[order]
    np.testing.assert_allclose(found["local_energy"][:, 0] @ [1, 1j], local, rtol=1e-8, atol=1e-9)
    scores = assembly.objective.score(found)
    assert scores["energy"] == pytest.approx(exact / own.sites)
    assert scores["energy"] > scores["energy"] * (1 + scores["relative_error"]) or scores["relative_error"] > -1e-12
    p = np.abs(psi) ** 2 / (np.abs(psi) ** 2).sum()
    spread = (p * np.abs(full @ psi / psi - exact) ** 2).sum() / own.sites**2
    assert scores["variance"] == pytest.approx(spread, rel=1e-8)


@pytest.mark.parametrize("case", ["chain", "translation", "field"])
def test_gradient_and_geometric_tensor_are_those_of_the_matrix(case):
    assembly, model, inputs, count = assembled(CASES[case])
    objective, weights = assembly.objective, list(model.parameters())
    own = objective.hamiltonian
    keys = own.states()
    full = torch.as_tensor(matrix(own, keys).toarray(), dtype=torch.complex128)
    sign = torch.ones(len(keys), dtype=torch.float64)
    if objective.marshall and own.conserves:
        sign = (-1.0) ** torch.as_tensor(bits(keys, own.sites)[:, own.sublattice == 0].sum(1)).double()
    wave = objective.wave(model, objective.inputs_of(model, torch.as_tensor(keys)))
    psi = sign * torch.polar(wave[:, 0].exp(), wave[:, 1])
    energy = (psi.conj() @ full @ psi).real / (psi.conj() @ psi).real / own.sites
    exact = torch.autograd.grad(energy, weights, retain_graph=True, allow_unused=True)
    found = torch.autograd.grad(objective.step(model, inputs, False)[0] / count, weights, allow_unused=True)
    for one, other in zip(found, exact):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-10)
    names = [name for name, _ in model.named_parameters()]
    rows = fisher_rows(model, objective.fisher(model, inputs), names)
    derivatives = torch.stack(
        [
            torch.cat(
                [g.flatten() for g in torch.autograd.grad(one, weights, retain_graph=True, materialize_grads=True)]
            )
            for one in wave.T.flatten()
        ]
    ).view(2, len(keys), -1)
    p = (psi.abs() ** 2 / (psi.abs() ** 2).sum()).detach()
    mean = torch.einsum("n,knp->kp", p, derivatives)
    tensor = torch.einsum("n,knp,knq->pq", p, derivatives, derivatives) - torch.einsum("kp,kq->pq", mean, mean)
    torch.testing.assert_close(rows.T @ rows, tensor, rtol=1e-7, atol=1e-10)
    if case == "translation":
        assert len(rows) < len(keys)


def test_symmetries_change_the_work_and_not_the_result():
    plain = {"data.size": 8, "objective.symmetry": [], "tokens.patch": 1}
    assembly, model, inputs, _ = assembled(plain)
    symmetric, _, _, _ = assembled({**plain, "objective.symmetry": ["translation"]})
    loss = assembly.objective.step(model, inputs, False)[0]
    # Tokens of single sites: the model itself does not change under translations.
    torch.testing.assert_close(symmetric.objective.step(model, inputs, False)[0], loss)
    assert len(symmetric.objective.sum_of(inputs.samples["state"]).keys) == 10  # necklaces of 8 beads, half of them up
    assert len(assembly.objective.sum_of(inputs.samples["state"]).keys) == 70


def test_metropolis_draws_states_with_their_probability():
    assembly, model, _, _ = assembled({"objective.symmetry": []})
    keys = assembly.objective.hamiltonian.states()
    p = np.abs(amplitudes(assembly, model, keys)) ** 2
    p /= p.sum()
    generator = torch.Generator().manual_seed(0)
    chains = torch.as_tensor(keys[np.zeros(4000, int)])
    moved = metropolis(lambda some: assembly.objective.log_amplitude(model, some), chains, 6, 12, True, generator)
    assert 0 < int(moved.accepted) < moved.proposed == 4000 * 6 * 12
    share = np.bincount(np.searchsorted(keys, moved.keys.numpy()), minlength=len(keys)) / 4000
    assert np.all(np.abs(share - p) < 4.5 * np.sqrt(p / 4000) + 1e-3)


def test_a_training_finds_the_ground_state(tmp_path):
    run = train(
        recipe(**{"train.steps": 60, "train.evaluate_every": 30, "model.dim": 16}), tmp_path / "run", show=False
    )
    exact = lowest(run.assembly.objective.hamiltonian).energies[0] / 6
    assert run.scores["energy"] == pytest.approx(exact, rel=1e-4)
    assert run.scores["energy"] >= exact - 1e-12  # the variational principle
    page = (run.path / "report.html").read_text()
    for words in ("Spin correlations against distance", "staggered magnetisation", "relative error"):
        assert words in page
    reached = json.loads((run.path / "scores.json").read_text())
    assert reached["parts"]["valid"]["scores"]["relative_error"] < 1e-4
    states = np.array([[[1, -1, 1, -1, 1, -1]], [[1, 1, 1, -1, -1, -1]]], np.int8)
    np.savez(tmp_path / "states.npz", image=states)
    found = run.predict([tmp_path / "states.npz"])
    assert found["log_amplitude"][0] > found["log_amplitude"][1]  # the staggered state is the most probable one


def test_markov_chains_agree_with_the_sum_and_are_resumed_bit_for_bit(tmp_path):
    made = recipe(**{**CHAINS, "train.steps": 8, "train.evaluate_every": 4})
    one = train(made, tmp_path / "one", show=False, report=False)
    reference = left(one)
    assert reference[0]["carried chains"].shape == (48,)
    train(made, tmp_path / "two", show=False, report=False, stop_after=4)
    before = left(tmp_path / "two")[0]["carried chains"]
    assert_same(train(made, tmp_path / "two", show=False, report=False), reference)
    assert not torch.equal(before, reference[0]["carried chains"])
    # The energy of the same weights, summed over all states.
    objective = one.assembly.objective
    keys = objective.hamiltonian.states()
    psi = amplitudes(one.assembly, one.step.model, keys)
    exact = (psi.conj() @ matrix(objective.hamiltonian, keys).toarray() @ psi).real / (psi.conj() @ psi).real / 6
    scores = one.evaluate("valid").scores
    assert abs(scores["energy"] - exact) < 4 * scores["energy_error"] + 1e-9
    assert one.evaluate("valid").scores == scores  # the same chains in every evaluation


def test_frozen_chains_are_an_error(tmp_path, monkeypatch):
    from sciformer.domains.spins.quantum.energy import Energy

    monkeypatch.setattr(Energy, "log_amplitude", lambda self, model, keys: 1e6 * -keys.double())
    made = recipe(**{**CHAINS, "data.chains": 400, "objective.sweeps": 8})
    lowest_state = torch.full((400,), 0b111)
    monkeypatch.setattr(Energy, "carried", lambda self, tokens: {"chains": Carried(lowest_state, divided=True)})
    with refuses("frozen", key="train.learning_rate"):
        train(made, tmp_path / "run", show=False, report=False)


@pytest.mark.parametrize(
    ("changes", "key", "mentions"),
    [
        ({"data.size": 7}, "data.size", ["odd", 7]),
        ({"data.lattice": "square", "data.size": 5, "tokens.patch": 1}, "data.size", ["odd", "side", 5]),
        ({"tokens.patch": [1, 4]}, "tokens.patch", ["1 x 4", "1 x 6"]),
        ({"data.interaction": "ising", "data.j2": 0.5}, "data.j2", ["ising"]),
        ({"data.interaction": "ising", "data.j2": 0, "objective.marshall": True}, "objective.marshall", ["marshall"]),
        ({"objective.marshall": False}, "objective.symmetry", [6, "flip"]),
        ({"model.periodic": False}, "objective.symmetry", ["translation"]),
        ({"train.batch": 8}, "train.batch", [8, 20]),
        ({"tokens.scale": "channel"}, "tokens.scale", ["+1"]),
        ({"data.size": 30}, "data.sampling", [30]),
        ({"data.size": 60, "data.sampling": "chains"}, "data.size", [60]),
    ],
)
def test_refusals(tmp_path, changes, key, mentions):
    with refuses(*mentions, key=key):
        train(recipe(**changes), tmp_path / "run", show=False, report=False)


def test_other_data_have_no_hamiltonian(tmp_path):
    np.savez(tmp_path / "states.npz", image=np.ones((8, 1, 6)), state=np.arange(8))
    with refuses("Hamiltonian", key="data.kind"):
        changes = {"data": {"kind": "arrays", "files": [str(tmp_path / "states.npz")]}}
        train(recipe().change(changes), tmp_path / "run", show=False, report=False)


def test_a_run_is_opened_again_without_its_training(tmp_path):
    run = train(recipe(), tmp_path / "run", show=False, report=False)
    again = Run(run.path)
    assert again.evaluate("valid").scores == pytest.approx(run.evaluate("valid").scores)
    assert math.isfinite(again.scores["energy"])
