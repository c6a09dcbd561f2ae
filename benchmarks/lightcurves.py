"""Tables of light curves. `python benchmarks/lightcurves.py PART ... --data FOLDER`

    asas      transformer, GRU, LSTM and CNN on 3,110 ASAS curves of 8 classes, five folds by object (--models; those
              that are told periods are `folded`, gru_periods, lstm_periods, cnn_periods)
    pretrain  the transformer with hidden observations on simulated stars (--number) and the ASAS curves outside each
              test fold, without labels; on the classes of the simulated stars alone; and the same with periods, on
              30,000 of them, each seen twice as often
    fewshot   what that is worth with 20, 100 and all labels of each class, against random weights and the published
              encoder of ASTROMER 1; what was pretrained also with a body at a tenth of the head's rate, and with one
              that learns nothing more (probe)
    s82       RR Lyrae of Stripe 82 in five bands: ab against c, and the period, beside the peak of a periodogram
    ztf       the redshift of supernovae in two bands, with its uncertainty
    denoise   simulated transits and oscillators against median and biweight filters
    signal    chirps in coloured noise: detection against the matched filter, and the waveform found
    logg      surface gravity of simulated oscillators against the peak of the spectrum

FOLDER holds asas_variables.parquet, sdss_s82_rrlyrae.parquet, ztf_bts_snia.parquet and astromer1_macho_weights.npz. All
models of a part see the same curves in the same number and batches, with the same optimizer; each takes the rate of the
same grid (--rates) that is best in validation with the first seed and the first fold; all seeds and folds then are
judged on what was kept apart. With 20 labels of each class at most 20 of each are used to choose, too. Runs are trained
side by side (--jobs); what is done is kept in --out, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lightcurves_real import WAYS, Asas, FewShot, Pretrain, StripeEightyTwo, Supernovae
from lightcurves_series import Denoise, Gravity, Signal
from lightcurves_tasks import Part
from pool import Result, Task
from tuning import Tuning, measure, options_of, trained

PARTS: dict[str, Part] = {
    "asas": Asas(),
    "pretrain": Pretrain(),
    "fewshot": FewShot(),
    "s82": StripeEightyTwo(),
    "ztf": Supernovae(),
    "denoise": Denoise(),
    "signal": Signal(),
    "logg": Gravity(),
}


def work(task: Task) -> Result:
    """Train and judge one model."""
    return trained(PARTS[task["part"]], task)


def main(arguments: list[str] | None = None) -> None:
    words = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--data", type=Path, help="folder with the real curves")
    parser.add_argument("--models", type=words, default=["transformer", "folded", "gru", "lstm", "cnn"], help="of asas")
    ways = ["scratch", "astromer1", "folded", *WAYS]
    parser.add_argument("--ways", type=words, default=ways, help="of fewshot and pretrain")
    parser.add_argument("--sizes", type=words, default=["20", "100", "all"], help="labels of each class, of fewshot")
    parser.add_argument("--number", type=int, default=200_000, help="simulated curves to train on")
    parser.add_argument("--epochs", type=int, default=10, help="how often each of these is seen")
    options = options_of(parser, arguments, "lightcurves", "so many of the five", jobs=8)
    for name in options.parts:
        PARTS[name].prepare(options)
        measure(Tuning(options, name, PARTS[name], "lightcurves.py"), work)


if __name__ == "__main__":
    main()
