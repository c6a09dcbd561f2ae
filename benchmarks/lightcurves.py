"""Tables of light curves. `python benchmarks/lightcurves.py PART ... --data FOLDER`

    asas      transformer, GRU, LSTM and CNN on 3,110 ASAS curves of 8 classes, five folds by object (--models; models
              with periods as input: folded, gru_periods, lstm_periods, cnn_periods)
    pretrain  the transformer by masked observations on simulated stars (--number) and the ASAS curves outside each test
              fold, without labels; on the classes of simulated stars alone; and the same with periods, on 30,000 stars
              with twice as many epochs
    fewshot   fine-tuning of these with 20, 100 and all labels per class, against random weights and the published
              encoder of ASTROMER 1; pretrained models also with a tenth of the learning rate for the trunk, and with a
              frozen trunk (probe)
    new       the recipe that `sciformer new` writes for 20 labels per class, as it is and as in version 0.1.0
    s82       RR Lyrae of Stripe 82 in five bands: class ab or c, and the period, against the peak of a periodogram
    ztf       redshift of supernovae in two bands, with uncertainty
    denoise   simulated transits and oscillators against median and biweight filters
    signal    chirps in coloured noise: detection against the matched filter, and the reconstructed waveform
    logg      surface gravity of simulated oscillators against the peak of the spectrum

FOLDER holds asas_variables.parquet, sdss_s82_rrlyrae.parquet, ztf_bts_snia.parquet and astromer1_macho_weights.npz. All
models of a part use the same curves, batches and optimizer. Each model takes the learning rate of a common grid
(--rates) with the best validation score of the first seed and fold. All seeds and folds are then evaluated on the test
part. With 20 labels per class, validation uses at most 20 per class too. Runs are trained side by side (--jobs).
Complete runs are kept in --out, and the same command resumes from there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lightcurves_real import WAYS, Asas, FewShot, Pretrain, StripeEightyTwo, Supernovae, Written
from lightcurves_series import Denoise, Gravity, Signal
from lightcurves_tasks import Part
from pool import Result, Task
from tuning import Tuning, measure, options_of, trained

PARTS: dict[str, Part] = {
    "asas": Asas(),
    "pretrain": Pretrain(),
    "fewshot": FewShot(),
    "new": Written(),
    "s82": StripeEightyTwo(),
    "ztf": Supernovae(),
    "denoise": Denoise(),
    "signal": Signal(),
    "logg": Gravity(),
}


def work(task: Task) -> Result:
    """Train and evaluate one model."""
    return trained(PARTS[task["part"]], task)


def main(arguments: list[str] | None = None) -> None:
    words = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--data", type=Path, help="folder with the real curves")
    parser.add_argument(
        "--models", type=words, default=["transformer", "folded", "gru", "lstm", "cnn"], help="models of asas"
    )
    ways = ["scratch", "astromer1", "folded", *WAYS]
    parser.add_argument("--ways", type=words, default=ways, help="initial weights of fewshot and pretrain")
    parser.add_argument("--sizes", type=words, default=["20", "100", "all"], help="labels per class, of fewshot")
    parser.add_argument("--number", type=int, default=200_000, help="simulated curves to train on")
    parser.add_argument("--epochs", type=int, default=10, help="epochs over the simulated curves")
    options = options_of(parser, arguments, "lightcurves", "number of folds (at most 5)", jobs=8)
    for name in options.parts:
        PARTS[name].prepare(options)
        measure(Tuning(options, name, PARTS[name], "lightcurves.py"), work)


if __name__ == "__main__":
    main()
