"""Forecast, gaps and downscaling of 2 m temperature from one masked model, against simple rivals.

    python benchmarks/fields.py --data era5_t2m_uk_201903.nc --record

One month of hourly ERA5 over Britain and Ireland, cut to 32 x 48 cells. A masked model is pretrained on days 1-21
(`zero_shot`) and fine-tuned on the mask of each row (`finetuned`), with numbers of steps that are fixed beforehand. The
penalties of the linear rivals are chosen on days 19-21 after a fit on days 1-18; then they are fitted on days 1-21. All
are judged on the last 10 days, at the same times:

    6h, 24h     forecast
    gap3, gap6  the middle hour between known hours 3 (6) hours before and behind it
    down4       downscaling of averages over 4 x 4 cells

persistence is the last known map (gaps: the mean of both neighbours; down4: the averages themselves), damped the last
anomaly times a factor for each cell, linear a ridge regression, unet and lstm networks of the last 12 hours (forecasts
and down4 alone). Intervals are of a bootstrap of days. One thread of a CPU takes about half an hour.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from measure import RESULTS, Row, commit, hardware, record, versions
from sciformer.domains.atmosphere.reader.reader import FieldFiles
from sciformer.evaluation.restore import make_task, restored_batches
from sciformer.recipe import Recipe
from sciformer.run import Run, train

Maps = NDArray[Any]
ROWS = ("6h", "24h", "gap3", "gap6", "down4")
FORECASTS = {"6h": 6, "24h": 24}
GAPS = {"gap3": 3, "gap6": 6}
TASKS: dict[str, tuple[str, float | None]] = {
    "6h": ("forecast", 6),
    "24h": ("forecast", 24),
    "gap3": ("between", 6),
    "gap6": ("between", 12),
    "down4": ("downscale", None),
}
DAY, CHOSEN, FITTED = 24, 18 * 24, 21 * 24  # hours; training days to choose penalties, and all training days
STEPS = 32  # of a neighbourhood
HEIGHT, WIDTH, FACTOR = 32, 48, 4
PENALTIES = (1e-3, 1e-1, 1e1, 1e3, 1e4)
LAGS = (0, 1, 2, 3, 6, 12, 18)
AROUND = (
    *((-6, 0), (6, 0), (-3, 0), (3, 0), (0, -4), (0, 4)),
    *((0, -8), (0, 8), (-6, -4), (-6, 4), (6, -4), (6, 4)),
)  # rows and columns to the twelve cells around


# Data


def cut(path: Path, out: Path) -> tuple[Maps, Maps]:
    """Write the cut month; return its maps (hours, rows, columns) from south to north, and the latitudes."""
    import xarray

    with xarray.open_dataset(path, decode_times=False) as whole:
        part = whole.isel(latitude=slice(0, HEIGHT), longitude=slice(0, WIDTH)).load()
    part.to_netcdf(out)
    part = part.sortby("latitude")
    return part["t2m"].values.astype(np.float64), part["latitude"].values


def climatology(maps: Maps, until: int) -> Maps:
    """Mean of each hour of the day and cell over the fitted hours, for all hours."""
    usual = np.stack([maps[hour:until:DAY].mean(0) for hour in range(DAY)])
    return np.asarray(usual[np.arange(len(maps)) % DAY])


def target_hours(row: str, count: int) -> Maps:
    """Judged hours: those of the last 10 days that have known hours behind them where they are needed."""
    behind = {"gap3": 17, "gap6": 18}.get(row, 0)  # of a neighbourhood of the masked model
    return np.arange(FITTED, count - behind)


def pooled(maps: Maps) -> Maps:
    """Averages over 4 x 4 cells, (..., rows / 4, columns / 4)."""
    shape = (*maps.shape[:-2], HEIGHT // FACTOR, FACTOR, WIDTH // FACTOR, FACTOR)
    return np.asarray(maps.reshape(shape).mean((-3, -1)))


def spread_out(coarse: Maps) -> Maps:
    """Repeat averages in all of their cells."""
    return coarse.repeat(FACTOR, -2).repeat(FACTOR, -1)


# Scores


def squares(said: Maps, truth: Maps, latitude: Maps) -> Maps:
    """Mean squared error of each map, weighted by the cosine of the latitude."""
    weight = np.cos(np.deg2rad(latitude))
    return np.asarray((((said - truth) ** 2).mean(-1) * weight / weight.mean()).mean(-1))


def interval(each: Maps, hours: Maps) -> list[float]:
    """Central 95 % interval of the root mean square, from a bootstrap of days."""
    rng, days = np.random.default_rng(0), hours // DAY
    sums = np.array([(each[days == day].sum(), (days == day).sum()) for day in np.unique(days)])
    drawn = sums[rng.integers(len(sums), size=(2000, len(sums)))].sum(1)
    return [round(float(end), 4) for end in np.sqrt(np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975]))]


# Simple rivals: predictions (targets, rows, columns) for hours, after a fit on the first `until` hours


def known_hours(row: str) -> list[int]:
    """Differences from the target to the hours that a rival sees, the nearest first."""
    if row in FORECASTS:
        return [-FORECASTS[row] - lag for lag in LAGS]
    if row in GAPS:
        return [sign * (GAPS[row] + more) for more in range(3) for sign in (-1, 1)]
    return [0]


def persistence(maps: Maps, row: str, hours: Maps, until: int) -> Maps:
    if row == "down4":
        return spread_out(pooled(maps[hours]))
    near = known_hours(row)[: 1 if row in FORECASTS else 2]
    return np.asarray(np.mean([maps[hours + apart] for apart in near], 0))


def damped(maps: Maps, row: str, hours: Maps, until: int) -> Maps:
    usual = climatology(maps, until)
    anomaly = maps - usual
    fitted = fitted_hours(row, until)
    before = persistence(anomaly, row, fitted, until)
    factor = (before * anomaly[fitted]).sum(0) / (before**2).sum(0)
    return np.asarray(usual[hours] + factor * persistence(anomaly, row, hours, until))


def fitted_hours(row: str, until: int) -> Maps:
    """Target hours of the fit, whose known hours are all inside."""
    near = known_hours(row)
    return np.arange(max(0, -min(near)), until - max(0, *near))


def features(anomaly: Maps, row: str, hours: Maps) -> Maps:
    """Features (targets, rows, columns, F) of a regression that all cells share."""
    near = known_hours(row)
    found = [anomaly[hours + apart] for apart in near]
    wide = [box_mean(anomaly[hours + apart]) for apart in (near[0], near[3] if row in FORECASTS else near[1])]
    first = np.pad(anomaly[hours + near[0]], ((0, 0), (8, 8), (8, 8)), mode="edge")
    around = [first[:, 8 + down : 8 + down + HEIGHT, 8 + aside : 8 + aside + WIDTH] for down, aside in AROUND]
    return np.stack([*found, *wide, *(around if row in FORECASTS else []), np.ones_like(found[0])], -1)


def box_mean(maps: Maps, half: int = 4) -> Maps:
    """Mean over the 9 x 9 cells around each cell."""
    padded = np.pad(maps, ((0, 0), (half, half), (half, half)), mode="edge")
    views = np.lib.stride_tricks.sliding_window_view(padded, (2 * half + 1, 2 * half + 1), (1, 2))
    return np.asarray(views.mean((-2, -1)))


def linear(maps: Maps, row: str, hours: Maps, until: int, penalty: float | None = None) -> Maps:
    if penalty is None:
        held = np.arange(CHOSEN, FITTED - max(0, *known_hours(row)))
        errors = [((linear(maps, row, held, CHOSEN, one) - maps[held]) ** 2).mean() for one in PENALTIES]
        penalty = PENALTIES[int(np.argmin(errors))]
    usual = climatology(maps, until)
    anomaly = maps - usual
    fitted = fitted_hours(row, until)
    if row == "down4":
        return usual[hours] + by_cell(anomaly[fitted], anomaly[hours], penalty)
    x, y = features(anomaly, row, fitted), anomaly[fitted]
    x = x.reshape(-1, x.shape[-1])
    weight = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y.ravel())
    return np.asarray(usual[hours] + features(anomaly, row, hours) @ weight)


def by_cell(fitted: Maps, asked: Maps, penalty: float) -> Maps:
    """Downscaling by a ridge regression of each cell on the 3 x 3 averages around it."""

    def nine(maps: Maps) -> Maps:
        coarse = np.pad(pooled(maps), ((0, 0), (1, 1), (1, 1)), mode="edge")
        high, wide = HEIGHT // FACTOR, WIDTH // FACTOR
        views = [coarse[:, down : down + high, aside : aside + wide] for down in range(3) for aside in range(3)]
        return np.stack([*views, np.ones_like(views[0])], -1)

    x, z = nine(fitted), nine(asked)
    made = np.empty_like(asked)
    for row in range(HEIGHT // FACTOR):
        for column in range(WIDTH // FACTOR):
            own, box = (
                x[:, row, column],
                np.s_[:, row * FACTOR : (row + 1) * FACTOR, column * FACTOR : (column + 1) * FACTOR],
            )
            normal = own.T @ own + penalty * np.eye(own.shape[1])
            weight = np.linalg.solve(normal, own.T @ fitted[box].reshape(len(fitted), -1))
            made[box] = (z[:, row, column] @ weight).reshape(len(asked), FACTOR, FACTOR)
    return made


# Networks of the last 12 hours


class UNet(nn.Module):
    """Convolutions at three resolutions with connections across (arXiv 1505.04597)."""

    def __init__(self, channels: int, width: int = 24) -> None:
        super().__init__()
        self.first, self.down, self.deep = (
            self.block(channels, width),
            self.block(width, 2 * width),
            self.block(2 * width, 2 * width),
        )
        self.up, self.last = self.block(4 * width, width), self.block(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    @staticmethod
    def block(before: int, after: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.GELU(), nn.Conv2d(after, after, 3, padding=1), nn.GELU()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pool, grow = nn.functional.max_pool2d, nn.functional.interpolate
        one = self.first(x)
        two = self.down(pool(one, 2))
        three = self.deep(pool(two, 2))
        two = self.up(torch.cat([two, grow(three, scale_factor=2.0)], 1))
        return self.out(self.last(torch.cat([one, grow(two, scale_factor=2.0)], 1)))[:, 0]


class LSTMNet(nn.Module):
    """LSTM over hours of averages over 4 x 4 cells, and a linear map to all cells."""

    def __init__(self, channels: int, width: int = 128) -> None:
        super().__init__()
        self.lstm = nn.LSTM(HEIGHT * WIDTH // FACTOR**2, width, batch_first=True)
        self.out = nn.Linear(width + 2, HEIGHT * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hours, phase = x[:, :-2], x[:, -2:, 0, 0]
        coarse = nn.functional.avg_pool2d(hours, FACTOR).flatten(2).flip(1)
        state = self.lstm(coarse)[0][:, -1]
        return self.out(torch.cat([state, phase], 1)).view(-1, HEIGHT, WIDTH)


def network(
    make: Callable[[int], nn.Module], maps: Maps, row: str, hours: Maps, steps: int, seed: int, device: str
) -> Maps:
    """Train a network on the anomalies of days 1-21; predict the hours."""
    usual = climatology(maps, FITTED)
    anomaly = maps - usual
    scale = anomaly[:FITTED].std()
    lead = FORECASTS.get(row, 0)
    shown = anomaly if lead else spread_out(pooled(anomaly))

    def inputs(at: Maps) -> torch.Tensor:
        past = np.stack([shown[at - lead - lag] for lag in range(12)], 1) / scale
        turn = 2 * np.pi * (at % DAY) / DAY
        phase = np.broadcast_to(np.stack([np.sin(turn), np.cos(turn)], 1)[..., None, None], (len(at), 2, HEIGHT, WIDTH))
        return torch.tensor(np.concatenate([past, phase], 1), dtype=torch.float32, device=device)

    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    net = make(14).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        at = rng.integers(lead + 11, FITTED, 16)
        truth = torch.tensor(anomaly[at] / scale, dtype=torch.float32, device=device)
        loss = ((net(inputs(at)) - truth) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        said = torch.cat([net(inputs(some)) for some in np.array_split(hours, 8)]).cpu().numpy()
    return np.asarray(usual[hours] + scale * said)


# The masked model


def recipe(path: Path, steps: int, seed: int, device: str, mask: dict[str, Any], rate: float) -> Recipe:
    model = {"kind": "encoder", "dim": 96, "depth": 3, "heads": 6, "position": "rotary", "dropout": 0.05}
    tokens = {"kind": "cubes", "field": "t2m", "cube": (1, 16, 16), "loss": "crps", "members": 8}
    data = {"kind": "fields", "files": [str(path)], "train": ("2019-03-01", "2019-03-21"), "valid": 0.0}
    data |= {"test": ("2019-03-22", "2019-03-31"), "neighbourhood": (STEPS, None, None)}
    loop: dict[str, Any] = {
        "steps": steps,
        "batch": 16,
        "warmup": steps // 10,
        "learning_rate": rate,
        "weight_decay": 0.05,
    }
    loop |= {"seed": seed, "device": device, "evaluate_every": steps, "save_every": steps, "log_every": 50}
    objective = {"kind": "masked", **mask}
    return Recipe.from_dict({"data": data, "tokens": tokens, "model": model, "objective": objective, "train": loop})


def answers(run: Run, path: Path, row: str, hours: Maps, folder: Path) -> tuple[Maps, Maps]:
    """Members (targets, M, rows, columns) of the masked model at the target hours, and the hours."""
    import xarray

    mask, length = TASKS[row]
    place = {"6h": STEPS - 1, "24h": STEPS - 1, "gap3": 15, "gap6": 15}.get(row, 0)  # of the target in a neighbourhood
    if row in GAPS:
        hidden = 2 * GAPS[row] - 1
        place = (STEPS - hidden) // 2 + GAPS[row] - 1
    name = folder / f"{row}-{run.path.name}.nc"  # an open file cannot be written again
    with xarray.open_dataset(path, decode_times=False) as whole:
        whole.isel(time=slice(int(hours[0]) - place, None)).to_netcdf(name)
    reader = FieldFiles(
        kind="fields", files=[str(name)], neighbourhood=(STEPS, None, None), stride=(8 if row == "down4" else 1, 1, 1)
    ).want(["t2m"])
    reader.state["learned"] = run.assembly.learned
    source = reader.read([name])
    dataset = run.assembly.samples(source)
    tokens: Any = run.assembly.tokens["tokens"]
    made: dict[int, list[Maps]] = {}
    first = int(hours[0]) - place
    for seen, found in restored_batches(run, dataset, make_task(run, mask, length, FACTOR)):
        asked = seen.stream.columns["asked"].astype(bool)
        members = found["tokens"]["members"]
        cubes = np.full((len(asked), *members.shape[1:]), np.nan)
        cubes[asked] = members
        each = cubes.reshape(len(seen), -1, *members.shape[1:])
        for number, one in zip(seen.ids, each):
            start = first + source.boxes.box(int(number)).time
            for at in range(STEPS) if row == "down4" else [place]:
                level = [tokens.maps(one[:, m], (1, STEPS, HEIGHT, WIDTH))[0, at] for m in range(members.shape[1])]
                made.setdefault(start + at, []).append(np.stack(level))
    kept = np.array([hour for hour in hours if hour in made])
    return np.stack([np.mean(made[int(hour)], 0) for hour in kept]), kept


def fair_crps(members: Maps, truth: Maps) -> Maps:
    """Fair CRPS of each map."""
    count = members.shape[1]
    weight = 2.0 * np.arange(count) - (count - 1)
    half = (np.sort(members, 1) * weight[:, None, None]).sum(1)
    return np.asarray(np.abs(members - truth[:, None]).mean(1) - half / (count * (count - 1)))


class Board:
    """Rows of results, recorded as soon as they are measured."""

    def __init__(self, given: argparse.Namespace, command: str) -> None:
        self.given, self.command = given, command
        self.found: dict[str, list[float]] = {}

    def add(self, name: str, value: float, **more: Any) -> None:
        self.found.setdefault(name, []).append(value)
        values = self.found[name]
        print(f"{name:34} {value:.4f} {more.get('interval', '')}", flush=True)
        row: Row = {"id": name, "value": round(statistics.mean(values), 4), "unit": "K", "better": "lower"}
        spread = round(statistics.stdev(values), 4) if len(values) > 1 else None
        row |= {"spread": spread, "seeds": len(values), "command": self.command}
        row |= {"hardware": hardware(self.given.device), "versions": versions(), "commit": commit(), **more}
        if self.given.record:
            record(RESULTS / "fields.json", [row])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pretrain", type=int, default=700, help="steps of the masked pretraining")
    parser.add_argument("--finetune", type=int, default=150, help="steps of each fine-tuning")
    parser.add_argument("--network", type=int, default=400, help="steps of U-Net and LSTM")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--skip", nargs="*", default=[], choices=["rivals", "networks", "masked"])
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    options = f"--skip {' '.join(given.skip)} " if given.skip else ""
    options += (
        f"--seeds {given.seeds} --pretrain {given.pretrain} --finetune {given.finetune} --network {given.network}"
    )
    board = Board(given, f"python benchmarks/fields.py --data era5_t2m_uk_201903.nc {options} --record")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "month.nc"
        maps, latitude = cut(given.data, path)

        def judge(row: str, who: str, said: Maps, hours: Maps) -> Maps:
            each = squares(said, maps[hours], latitude)
            board.add(f"era5.{row}.{who}.rmse", float(np.sqrt(each.mean())), interval=interval(each, hours))
            return each

        for row in given.rows if "rivals" not in given.skip else ():
            hours = target_hours(row, len(maps))
            for rival in (persistence, damped, linear):
                judge(row, rival.__name__, rival(maps, row, hours, FITTED), hours)
        for seed in range(given.seeds):
            if "masked" not in given.skip:
                mask = {"mask_ratio": (0.1, 0.9), "coarse": 0.2, "coarse_factor": FACTOR}
                run = train(
                    recipe(path, given.pretrain, seed, given.device, mask, 1e-3),
                    folder / f"run{seed}",
                    show=False,
                    report=False,
                )
                for row in given.rows:
                    said, hours = answers(run, path, row, target_hours(row, len(maps)), folder)
                    judge(row, "zero_shot", said.mean(1), hours)
                for row in given.rows:
                    task, length = TASKS[row]
                    mask = {"mask": task, "mask_length": length, "coarse_factor": FACTOR}
                    tuned = recipe(path, given.finetune, seed, given.device, mask, 3e-4)
                    tuned = tuned.change({"train.init_from": str(folder / f"run{seed}")})
                    own = train(tuned, folder / f"{row}{seed}", show=False, report=False)
                    said, hours = answers(own, path, row, target_hours(row, len(maps)), folder)
                    each = judge(row, "finetuned", said.mean(1), hours)
                    if row in FORECASTS:
                        weight = np.cos(np.deg2rad(latitude))[:, None] / np.cos(np.deg2rad(latitude)).mean()
                        crps = float((fair_crps(said, maps[hours]) * weight).mean())
                        board.add(f"era5.{row}.finetuned.crps", crps)
                        count = said.shape[1]
                        ratio = np.sqrt((count + 1) / count * (said.var(1, ddof=1) * weight).mean() / each.mean())
                        board.add(f"era5.{row}.finetuned.spread_skill", float(ratio), unit="ratio", better="higher")
            for row in given.rows if "networks" not in given.skip else ():
                if row not in GAPS:
                    hours = target_hours(row, len(maps))
                    for who, make in (("unet", UNet), ("lstm", LSTMNet)):
                        judge(row, who, network(make, maps, row, hours, given.network, seed, given.device), hours)
        rivals = ("persistence", "damped", "linear", "unet", "lstm")
        means = {name: statistics.mean(values) for name, values in board.found.items()}
        ahead = sum(
            means[f"era5.{row}.finetuned.rmse"]
            < min(means[f"era5.{row}.{who}.rmse"] for who in rivals if f"era5.{row}.{who}.rmse" in means)
            for row in ROWS
            if f"era5.{row}.finetuned.rmse" in means and f"era5.{row}.linear.rmse" in means
        )
        if all(f"era5.{row}.{who}.rmse" in means for row in ROWS for who in ("finetuned", "linear")):
            board.add("era5.rows_ahead", float(ahead), unit="of 5 rows", better="higher")
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
