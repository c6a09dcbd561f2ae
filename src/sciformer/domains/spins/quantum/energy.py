"""Energy of a wave function: the variational principle, with exact sums or Markov chains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ....data.batch import Batch, ModelInputs, StreamView
from ....data.columns import Array
from ....data.dataset import Dataset
from ....errors import UserError
from ....nn import ClassHead
from ....objectives.base import CARRIED, Carried, Fisher, Objective, Outputs, Rows, ScoreGroup, Widths
from ....tokens.base import Tokens
from ...images.tokens import Patches
from .exact import correlations, correlations_of, lowest, staggered
from .hamiltonian import Hamiltonian, images
from .metropolis import Moved, metropolis
from .orbits import Orbits
from .states import StateTable
from .statistics import autocorrelation_time, mean_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_EXACT_SITES = 16  # spins for which the exact energy is computed before the training
MAX_STATES_PER_PASS = 8192  # states in a pass without gradients
CHECKED_STATES = 4  # states whose translations are compared
MIN_PROPOSED = 1000  # proposed moves, without a single accepted one, of frozen chains
EVALUATION_SEED = 0  # of the Markov chains of an evaluation


class WaveHead(ClassHead):
    """Head of a wave function: ln |psi| and the phase (B, 2) of pooled vectors (B, D).

    spread   factor of the initial weights of the phase
    tokens   tokens that turn states into inputs of the model
    """

    def __init__(self, dim: int, hidden: Any, spread: float, tokens: Tokens) -> None:
        super().__init__(dim, 2, hidden)
        self.tokens = tokens
        last = [part for part in self.modules() if isinstance(part, nn.Linear)][-1]
        with torch.no_grad():
            last.weight[1] *= spread


class Sum(NamedTuple):
    """States of a sum, one for each orbit.

    keys      (R,) sorted states
    inverse   (B,) place of each state of the batch among them
    counts    (R,) number of states of the batch in each orbit
    """

    keys: Tensor
    inverse: Tensor
    counts: Tensor


class Energy(Objective):
    """Energy of a wave function psi: E = sum_s p(s) E_loc(s), p = |psi|^2 / sum |psi|^2.

        E_loc(s) = sum_s' H(s, s') psi(s') / psi(s),   ln psi(s) = amplitude + i phase

    The model reads a state s and gives amplitude and phase from its pooled vector. E is never below the energy of the
    ground state. Its gradient is 2 Re sum_s p(s) (E_loc(s) - E) grad ln psi(s)*. The states come from
    `data.kind: states`: all of them, or Markov chains, which are part of a checkpoint.
    """

    whole_batch: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True
    unit: ClassVar[str] = "states"

    marshall: bool = True
    """Multiply psi by the Marshall sign (-1)^(spins up on one sublattice), which makes the ground state positive for
    J2 = 0 on a bipartite lattice; only for interaction: heisenberg (default: true)."""
    symmetry: list[Literal["translation", "flip"]] = Field(default_factory=list)
    """Symmetries of psi, besides the Marshall sign; each of them shortens the sum over states (default: none).
    translation: by single sites; flip: of all spins. The output of the model becomes the mean over the translations
    inside a patch, and over a state and its flipped state. translation needs a model that does not change under
    translations by whole patches: model.position: relative with model.periodic, or model.position: none."""
    hidden: Widths | None = None
    """Width of the hidden layer of the head, or a list of widths (default: a linear head)."""
    phase_spread: float = Field(default=10.0, ge=0, le=1000)
    """Factor of the initial weights of the phase (default: 10). If all phases are nearly equal at the beginning, the
    sign of a state can hardly change later. With 0 the phases start equal, as in a positive wave function."""
    sweeps: int = Field(default=1, ge=1, le=10_000)
    """Metropolis sweeps of N moves before each step, only for Markov chains (default: 1)."""
    measurements: int = Field(default=50, ge=1, le=100_000)
    """Measurements of each Markov chain in an evaluation, `sweeps` apart (default: 50)."""
    burn_in: int = Field(default=50, ge=0, le=100_000)
    """Metropolis sweeps before the first measurement of an evaluation (default: 50)."""
    exact: bool = True
    """Compute the exact energy by the Lanczos method for comparison, up to 16 spins, if SciPy is installed (default:
    true)."""

    @property
    def sends(self) -> tuple[str, ...]:
        return ("state",)

    @property
    def required_columns(self) -> tuple[str, ...]:
        return (*super().required_columns, "state")

    @property
    def measured(self) -> list[str]:
        return ["energy", "variance"]

    @property
    def enumerated(self) -> bool:
        """Whether all states are summed, instead of states of Markov chains."""
        return bool(self.state["enumerated"])

    @property
    def hamiltonian(self) -> Hamiltonian:
        return Hamiltonian.from_json(self.state["hamiltonian"])

    def fit(self, train: Dataset) -> None:
        """Take over the Hamiltonian from the data, and compute its exact ground state if it is small."""
        source, kind = train.source, train.tokens[self.asked_stream(train.tokens)]
        if not isinstance(source, StateTable):
            message = f"`objective.kind: {self.kind}` needs a Hamiltonian, which these data do not have"
            raise UserError(message, hint="Use data.kind: states.", key="data.kind")
        own = source.hamiltonian
        patch = _check_tokens(kind, own.shape)
        if self.marshall and not own.conserves:
            message = "objective.marshall is for data.interaction: heisenberg; a transverse field breaks the sign rule"
            raise UserError(message, hint="Set objective.marshall: false.", key="objective.marshall")
        if "flip" in self.symmetry and own.conserves and not self.marshall and own.sites % 4:
            message = f"the ground state of {own.sites} spins changes its sign with the flip of all spins"
            raise UserError(message, hint="Set objective.marshall: true.", key="objective.symmetry")
        self.state.update(
            hamiltonian=own.to_json(), enumerated=source.enumerated, states=sum(source.sizes), patch=list(patch)
        )
        if self.exact and own.sites <= MAX_EXACT_SITES:
            try:
                found = lowest(own, 2)
            except UserError:  # SciPy is missing
                return
            correlation = correlations(own, found.keys, found.amplitudes**2)
            gap = float(found.energies[1] - found.energies[0])
            self.state["exact"] = {"energy": found.energies[0] / own.sites, "gap": gap}
            self.state["exact"]["correlation"] = correlation.tolist()

    def heads(self, dim: int, tokens: Tokens) -> dict[str, nn.Module]:
        return {"wave": WaveHead(dim, self.hidden, self.phase_spread, tokens)}

    def carried(self, tokens: Mapping[str, Tokens]) -> dict[str, Carried]:
        """States of the Markov chains, if states are sampled: random ones before the first step."""
        if self.enumerated:
            return {}
        own, count = self.hamiltonian, self.state["states"]
        noise = torch.rand(count, own.sites)
        up = noise.argsort(1) < own.sites // 2 if own.conserves else noise < 0.5
        return {"chains": Carried((up.long() << torch.arange(own.sites)).sum(1), divided=True)}

    def orbits(self) -> Orbits:
        """Symmetry group of the wave function."""
        return Orbits(self.hamiltonian.shape, "translation" in self.symmetry, "flip" in self.symmetry)

    # The wave function

    def wave(self, model: Any, inputs: ModelInputs) -> Tensor:
        """Amplitude ln |psi| and phase (B, 2), without the Marshall sign."""
        view = inputs.view(self.stream)
        turned = self._turned(view.columns["patch"])
        found: list[Tensor] = []
        for patch in turned:
            columns = {**view.columns, "patch": patch}
            one = ModelInputs({**inputs.streams, view.name: StreamView(columns, view.valid)}, {}).view(view.name)
            found.append(model.heads["wave"](model.pool(model.encode(one))))
        return torch.stack(found).mean(0)

    def _turned(self, patch: Tensor) -> list[Tensor]:
        """Patches (B, N, spins), translated by each number of sites inside a patch, and flipped."""
        (rows, columns), (down, right) = self.hamiltonian.shape, self.state["patch"]
        found = [patch]
        if "translation" in self.symmetry and down * right > 1:
            grid = patch.unflatten(1, (rows // down, columns // right)).unflatten(3, (down, right))
            whole = grid.transpose(2, 3).flatten(3, 4).flatten(1, 2)  # (B, rows, columns)
            shifts = [(i, j) for i in range(down) for j in range(right)]
            moved = [whole if shift == (0, 0) else whole.roll(shift, (1, 2)) for shift in shifts]
            cut = [one.unflatten(1, (-1, down)).unflatten(3, (-1, right)).transpose(2, 3) for one in moved]
            found = [one.flatten(3, 4).flatten(1, 2) for one in cut]
        return found + [-one for one in found] if "flip" in self.symmetry else found

    def inputs_of(self, model: Any, keys: Tensor) -> ModelInputs:
        """Inputs of the model for states (n,)."""
        tokens: Tokens = model.heads["wave"].tokens
        stream = tokens.tokenize({"image": images(keys.cpu().numpy(), self.hamiltonian.shape)})
        double = next(model.parameters()).dtype == torch.float64
        batch = Batch({self.stream or "tokens": tokens.normalise(stream)}, double=double)
        return batch.inputs(shares=True).to(keys.device)

    @torch.no_grad()
    def log_psi(self, model: Any, keys: Tensor) -> Tensor:
        """Amplitude and phase (n, 2) of states (n,), without gradients."""
        parts = [self.wave(model, self.inputs_of(model, some)) for some in keys.split(MAX_STATES_PER_PASS)]
        return torch.cat(parts)

    def log_amplitude(self, model: Any, keys: Tensor) -> Tensor:
        """ln |psi| (n,) of states (n,), each different state evaluated once."""
        found, inverse = torch.unique(self.orbits().canonical(keys), return_inverse=True)
        return self.log_psi(model, found)[inverse, 0]

    def sum_of(self, keys: Tensor) -> Sum:
        """Sum over states (B,), one state for each orbit."""
        found, inverse, counts = torch.unique(self.orbits().canonical(keys), return_inverse=True, return_counts=True)
        return Sum(found, inverse, counts)

    def weights(self, summed: Sum, amplitude: Tensor) -> Tensor:
        """Weight (R,) of each orbit in the sum, with sum 1: its probability, or its share of the Markov chains."""
        if not self.enumerated:
            return summed.counts.to(amplitude.dtype) / summed.counts.sum()
        return (2 * amplitude + summed.counts.to(amplitude.dtype).log()).softmax(0)

    @torch.no_grad()
    def local_energy(self, model: Any, keys: Tensor, wave: Tensor) -> Tensor:
        """Local energies (n, 2), real and imaginary, of sorted states (n,) with amplitude and phase (n, 2)."""
        own = self.hamiltonian
        masks, elements, pairs = (
            torch.as_tensor(one, device=keys.device) for one in own.moves(self.marshall and own.conserves)
        )
        bits = (keys[:, None] >> torch.arange(own.sites, device=keys.device)) & 1
        bonds = torch.as_tensor(own.bonds, device=keys.device)
        signs = 1 - 2 * (bits[:, bonds[:, 0]] ^ bits[:, bonds[:, 1]])
        energy = torch.zeros_like(wave)
        energy[:, 0] = signs.to(wave.dtype) @ torch.as_tensor(own.zz, device=keys.device).to(wave.dtype)
        exchange = pairs[:, 0] != pairs[:, 1]
        row, move = torch.where((bits[:, pairs[:, 0]] != bits[:, pairs[:, 1]]) | ~exchange)
        # Each state, and then each orbit, is looked up or evaluated once.
        states, of_state = torch.unique(keys[row] ^ masks[move], return_inverse=True)
        orbits, of_orbit = torch.unique(self.orbits().canonical(states), return_inverse=True)
        place = torch.searchsorted(keys, orbits).clamp(max=len(keys) - 1)
        there = wave.detach()[place]
        if len(new := torch.where(keys[place] != orbits)[0]):
            there[new] = self.log_psi(model, orbits[new])
        change = there[of_orbit][of_state] - wave.detach()[row]
        size = elements[move].to(wave.dtype) * change[:, 0].exp()
        each = torch.stack([size * change[:, 1].cos(), size * change[:, 1].sin()], 1)
        return energy.index_add(0, row, each)

    # Training

    def step(self, model: Any, inputs: ModelInputs, outputs: bool) -> tuple[Tensor, Outputs]:
        if outputs and not self.enumerated:
            return self._measure(model, inputs)
        carried: Outputs = {}
        if self.enumerated:
            keys, mine = inputs.gathered(inputs.samples["state"])
            self._check_complete(len(keys))
        else:
            moved = self._move(model, inputs.carried["chains"], self.sweeps, None)
            carried[CARRIED + "chains"] = moved.keys
            keys, mine = inputs.gathered(moved.keys)
        summed = self.sum_of(keys)
        self._check_invariant(model, summed.keys)
        wave = self.wave(model, self.inputs_of(model, summed.keys))
        weights = self.weights(summed, wave[:, 0].detach())
        local = self.local_energy(model, summed.keys, wave)
        energy = (weights * local[:, 0]).sum()
        centred = torch.stack([local[:, 0] - energy, local[:, 1]], 1)
        surrogate = 2 * (weights[:, None] * centred * wave).sum()
        sites = self.hamiltonian.sites
        loss = (energy + surrogate - surrogate.detach()) * len(keys) / sites
        if not outputs:
            return loss, carried
        share = (weights / summed.counts)[summed.inverse]
        found = {"probability": share, "local_energy": local[summed.inverse, None]}
        return loss, {name: value[mine] for name, value in {**found, **self._correlations(keys, local)}.items()}

    def fisher(self, model: Any, inputs: ModelInputs) -> Fisher:
        """Quantum geometric tensor S = Re (<O* O> - <O*><O>) with the derivatives O of ln psi.

        Its inverse turns gradient descent into imaginary-time evolution: stochastic reconfiguration.
        """
        summed = self.sum_of(inputs.samples["state"] if self.enumerated else inputs.carried["chains"])

        def rows(wave: Tensor, derivatives: Tensor) -> Tensor:
            weights = self.weights(summed, wave[:, 0])
            centred = derivatives - torch.einsum("b,bkp->kp", weights, derivatives)
            return (weights.sqrt()[:, None, None] * centred).flatten(0, 1)

        return Fisher(self.inputs_of(model, summed.keys), self.wave, rows)

    def _move(self, model: Any, keys: Tensor, sweeps: int, generator: torch.Generator | None) -> Moved:
        """Move the Markov chains; an error if they are frozen."""
        own = self.hamiltonian
        moved = metropolis(partial(self.log_amplitude, model), keys, own.sites, sweeps, own.conserves, generator)
        if moved.proposed >= MIN_PROPOSED and not int(moved.accepted):
            message = f"the Markov chains are frozen: none of {moved.proposed:,} proposed moves was accepted"
            hint = "The wave function is almost a single state: lower train.learning_rate or raise train.damping."
            raise UserError(message, hint=hint, key="train.learning_rate")
        return moved

    @torch.no_grad()
    def _measure(self, model: Any, inputs: ModelInputs) -> tuple[Tensor, Outputs]:
        """Loss and outputs of an evaluation with Markov chains: several measurements of each chain."""
        keys = inputs.carried["chains"]
        generator = torch.Generator(keys.device).manual_seed(EVALUATION_SEED)
        keys = self._move(model, keys, self.burn_in, generator).keys if self.burn_in else keys
        series, correlation = [], torch.zeros(0)
        for _ in range(self.measurements):
            keys = self._move(model, keys, self.sweeps, generator).keys
            summed = self.sum_of(keys)
            local = self.local_energy(model, summed.keys, self.log_psi(model, summed.keys))
            series.append(local[summed.inverse])
            here = self._correlations(keys, local)["correlation"]
            correlation = here if not len(correlation) else correlation + here
        energies = torch.stack(series, 1)
        every = inputs.gathered(energies)[0]
        found = {
            "probability": torch.full_like(energies[:, 0, 0], 1 / len(every)),
            "local_energy": energies,
            "correlation": correlation / self.measurements,
        }
        return every[..., 0].mean() * len(every) / self.hamiltonian.sites, found

    def _correlations(self, keys: Tensor, like: Tensor) -> Outputs:
        """Correlations of the spins of each state (n, N), row by row of the lattice."""
        spins = images(keys.cpu().numpy(), self.hamiltonian.shape)
        found = torch.as_tensor(correlations_of(spins)).flatten(1)
        return {"correlation": found.to(like)}

    def _check_complete(self, count: int) -> None:
        """Refuse a batch that is only a part of all states."""
        if count != self.state["states"]:
            message = f"the energy is a sum over all {self.state['states']:,} states, but a batch has {count:,} of them"
            hint = f"Set train.batch to {self.state['states']} or more."
            raise UserError(message, hint=hint, key="train.batch")

    def _check_invariant(self, model: Any, keys: Tensor) -> None:
        """Refuse a model that changes under the translations of `symmetry`."""
        if "translation" not in self.symmetry:
            return
        moved = self.orbits().translate(keys[-CHECKED_STATES:])
        found = self.log_psi(model, moved.flatten()).view(*moved.shape, 2)
        if (found - found[:, :1]).abs().max() > 1e-4 * (1 + found.abs().max()):
            message = (
                "objective.symmetry: translation cannot be used: the output of the model changes with a translation"
            )
            hint = "Use model.position: relative with model.periodic: true, or model.position: none."
            raise UserError(message, hint=hint, key="objective.symmetry")

    # Predictions and scores

    def predict(self, model: Any, inputs: ModelInputs) -> Outputs:
        """Amplitude ln |psi| and phase of each state, without the Marshall sign."""
        wave = self.wave(model, inputs)
        return {"log_amplitude": wave[:, 0], "phase": wave[:, 1]}

    def score(self, outputs: Mapping[str, Array]) -> dict[str, float]:
        """Energy per spin with its error, variance, staggered magnetisation, and the error against the exact energy."""
        sites, local = self.hamiltonian.sites, outputs["local_energy"]
        p = outputs["probability"] / outputs["probability"].sum()
        mean = np.einsum("b,bmk->k", p, local) / local.shape[1]
        spread = float(np.einsum("b,bmk->", p, (local - mean) ** 2) / local.shape[1])
        found = {"energy": float(mean[0]) / sites, "variance": spread / sites**2}
        if not self.enumerated:
            found["energy_error"] = mean_error(local[..., 0]) / sites
            found["autocorrelation_time"] = autocorrelation_time(local[..., 0])
        if self.hamiltonian.conserves:
            found["staggered_magnetisation"] = staggered(self._mean_correlation(outputs))
        if "exact" in self.state:
            exact = self.state["exact"]["energy"]
            found["relative_error"] = (found["energy"] - exact) / abs(exact)
        return found

    def score_intervals(self, outputs: Mapping[str, Array]) -> dict[str, tuple[float, float]]:
        """No bootstrap: an exact sum has no random samples, and Markov chains have `energy_error`."""
        return {}

    def _mean_correlation(self, outputs: Mapping[str, Array]) -> Array:
        """<S^z_0 S^z_d> (rows, columns)."""
        p = outputs["probability"] / outputs["probability"].sum()
        return np.asarray(p @ outputs["correlation"]).reshape(self.hamiltonian.shape)

    def headline(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in ("loss", "energy", "variance", "relative_error", "energy_error")]

    def score_groups(self, names: Iterable[str]) -> list[ScoreGroup]:
        return []

    def details(self, outputs: Mapping[str, Array], samples: Mapping[str, Array] | None = None) -> dict[str, Rows]:
        """Spin correlations of displacements up to half of the lattice."""
        return {"Spin correlations": list(self._correlation_rows(outputs))}

    def _correlation_rows(self, outputs: Mapping[str, Array]) -> Iterable[dict[str, Any]]:
        found, (rows, columns) = self._mean_correlation(outputs), self.hamiltonian.shape
        exact = self.state.get("exact", {}).get("correlation")
        for down in range(rows // 2 + 1):
            for right in range(down if rows > 1 else 0, columns // 2 + 1):
                place = {"displacement": f"{down}, {right}" if rows > 1 else f"{right}"}
                row = {**place, "<S^z_0 S^z_d>": f"{found[down, right]:.5f}"}
                yield row if exact is None else {**row, "exact": f"{exact[down][right]:.5f}"}

    def figures(self, outputs: Mapping[str, Array], samples: Mapping[str, Array]) -> dict[str, Callable[[], Figure]]:
        """Spin correlations against distance."""
        from .plots import draw_correlations

        found, exact = self._mean_correlation(outputs), self.state.get("exact", {}).get("correlation")
        return {"Spin correlations against distance": partial(draw_correlations, found, exact)}


def _check_tokens(kind: Tokens, shape: tuple[int, int]) -> tuple[int, int]:
    """Sides of the patches of a lattice; an error for tokens that cannot be used."""
    if not isinstance(kind, Patches):
        message = f"`objective.kind: energy` needs patches of spins, not `tokens.kind: {kind.kind}`"
        raise UserError(message, hint="Use tokens.kind: patches.", key="tokens.kind")
    sides = kind.cutting.sides
    if any(size % side for size, side in zip(shape, sides)):
        message = f"patches of {sides[0]} x {sides[1]} spins do not divide a lattice of {shape[0]} x {shape[1]}"
        raise UserError(message, hint="Choose patch sides that divide the lattice.", key="tokens.patch")
    if kind.scale != "none" or kind.stretch != "none" or kind.augment or kind.window is not None:
        message = "spins must enter the model as +1 and -1, without scaling, augmentation and windows"
        raise UserError(message, hint="Set tokens.scale: none; remove augment, stretch and window.", key="tokens.scale")
    return sides[0], sides[1]
