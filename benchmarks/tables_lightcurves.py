"""Tables of light curves, for `tables.py`."""

from __future__ import annotations

from measure import Row
from table import UNKNOWN, figure, markdown, rows

MODELS = {
    "transformer": "`lightcurves/transformer`",
    "folded": "`lightcurves/folded`, with periods",
    "gru": "`lightcurves/gru`",
    "lstm": "`lightcurves/lstm`",
    "cnn": "`lightcurves/cnn`",
    "gru_periods": "`lightcurves/gru`, with periods",
    "lstm_periods": "`lightcurves/lstm`, with periods",
    "cnn_periods": "`lightcurves/cnn`, with periods",
    "forest": "random forest, ten moments and percentiles",
    "forest_period": "random forest, the same and a Lomb-Scargle period",
}
WAYS = {
    "pretrained": "pretrained, masked observations",
    "pretrained_head": "the same, trunk at a tenth of the head's learning rate",
    "pretrained_probe": "the same, frozen trunk, only a new head trained",
    "supervised": "pretrained, classes of simulated stars",
    "supervised_head": "the same, trunk at a tenth of the head's learning rate",
    "supervised_probe": "the same, frozen trunk, only a new head trained",
    "scratch": "from random weights",
    "astromer1": "ASTROMER 1, published encoder",
    "folded": "from random weights, with periods",
    "folded_supervised": "pretrained, classes of simulated stars, with periods",
}


def share(row: Row | None) -> str:
    """Share with its spread over seeds."""
    return figure(row, 3)


def asas() -> str:
    """Table of classes of ASAS curves."""
    found = rows("lightcurves")
    lines = []
    for model, name in MODELS.items():
        f1, accuracy = (found.get(f"asas.{model}.{metric}") for metric in ("macro_f1", "accuracy"))
        size = f"{f1['parameters']:,}" if f1 and "parameters" in f1 else ""
        lines.append([name, share(f1), share(accuracy), size])
    return markdown(["", "macro F1", "accuracy", "parameters"], lines)


def asas_confusion() -> str:
    """Confusion matrix of the best transformer on ASAS.

    Counts are means over seeds, summed over all folds.
    """
    row = rows("lightcurves").get("asas.folded.macro_f1")
    if row is None:
        return UNKNOWN
    lines = [
        [name, *(f"{count:.0f}" for count in counts), f"{counts[place] / sum(counts):.2f}"]
        for place, (name, counts) in enumerate(zip(row["classes"], row["confusion"]))
    ]
    return markdown(["true class, predicted as", *row["classes"], "recall"], lines)


def fewshot() -> str:
    """Table of macro F1 by labels per class."""
    found = rows("lightcurves")
    sizes = ("20", "100", "all")
    lines = [
        [name, *(share(found.get(f"asas_fewshot.{size}.{way}.macro_f1")) for size in sizes)]
        for way, name in WAYS.items()
    ]
    return markdown(["", "20 labels per class", "100", "all"], lines)


NEW = {
    "before": "recipe of `sciformer new`, version 0.1.0",
    "now": "recipe of `sciformer new`, with periods and summary",
    "forest": MODELS["forest"],
    "forest_period": MODELS["forest_period"],
}


def new() -> str:
    """Table of the recipe that `sciformer new` writes, against random forests."""
    found = rows("lightcurves")
    lines = [[name, share(found.get(f"asas_new.20.{way}.macro_f1"))] for way, name in NEW.items()]
    return markdown(["20 labels per class", "macro F1"], lines)


OTHERS = {
    "s82.accuracy": "RR Lyrae of Stripe 82: ab against c, accuracy",
    "s82.period_error": "period of these stars: root mean square error, days",
    "ztf.redshift_rmse": "redshift of ZTF supernovae: root mean square error",
    "ztf.coverage68": "share of true redshifts within one predicted standard deviation (ideal: 0.683)",
    "denoise.ratio_median": "denoising: error relative to a median filter of the best width",
    "denoise.ratio_biweight": "the same relative to a biweight filter",
    "signal.8.efficiency": "signals of SNR 8 found at 1 % false alarms",
    "signal.8.matched_filter": "the same by the matched filter with the true waveform",
    "signal.15.efficiency": "signals of SNR 15 found at 1 % false alarms",
    "signal.15.matched_filter": "the same by the matched filter",
    "signal.50.efficiency": "signals of SNR 50 found at 1 % false alarms",
    "signal.50.matched_filter": "the same by the matched filter",
    "signal.50.overlap": "overlap of reconstructed and true waveform, SNR 50",
    "logg.rmse": "log g of simulated oscillators: root mean square error, dex",
    "logg.peak_rmse": "the same from the peak of the spectrum, dex",
}

BESIDE = {
    "s82.period_error": {
        "peak_rmse": "the same for the highest peak of the periodogram, days",
        "within_1_percent": "share of these periods within 1 %",
        "peak_within_1_percent": "the same for the highest peak",
    },
    "ztf.redshift_rmse": {"peak_rmse": "the same from the brightest magnitudes alone, a fit by least squares"},
}


def curves() -> str:
    """Table of the other tasks on light curves."""
    found = rows("lightcurves")
    lines = []
    for name, words in OTHERS.items():
        lines.append([words, figure(found.get(name), 4 if "redshift" in name else 3)])
        for key, more in BESIDE.get(name, {}).items():
            row = found.get(name)
            lines.append([more, f"{row[key]:.4f}" if row else UNKNOWN])
    return markdown(["", "measured"], lines)


STREAMS = {
    "image": "image alone",
    "curve": "light curve alone",
    "scalars": "magnitude alone",
    "all": "all three",
    "no_image": "the same model without the image",
    "no_curve": "without the light curve",
    "no_scalars": "without the magnitude",
    "only_image": "with the image alone",
    "only_curve": "with the light curve alone",
    "only_scalars": "with the magnitude alone",
}


def streams() -> str:
    """Table of class and redshift of supernovae from several streams."""
    found = rows("multistream")
    lines = [
        [
            words,
            figure(found.get(f"multistream.{name}.accuracy"), 3),
            figure(found.get(f"multistream.{name}.redshift_error"), 4),
        ]
        for name, words in STREAMS.items()
    ]
    return markdown(["", "accuracy, four types", "mean error of the redshift"], lines)


def complete_streams() -> str:
    """Table of models trained with and without missing streams."""
    found = rows("multistream")
    lines = [
        [words, *(figure(found.get(f"multistream.{model}{name}.accuracy"), 3) for model in ("", "complete."))]
        for name, words in list(STREAMS.items())[3:]
    ]
    return markdown(["accuracy, tested", "trained with `drop_stream: 0.2`", "trained with all streams"], lines)


def question_streams() -> str:
    """Table of the hidden colour of a caption."""
    found = rows("multistream")
    words = {"picture": "picture alone", "words": "words alone", "both": "picture and words"}
    lines = [[text, figure(found.get(f"multistream.question.{name}.accuracy"), 3)] for name, text in words.items()]
    return markdown(["", "accuracy, eight colours"], lines)


RAGGED = {
    "train_cpu": "training, CPU",
    "infer_cpu": "vectors, CPU",
    "train_gpu": "training, GPU",
    "infer_gpu": "vectors, GPU",
}


def ragged() -> str:
    """Table of ragged batches against padded batches."""
    found = rows("lightcurves-speed")
    lines = []
    for part, name in RAGGED.items():
        line = [name]
        for kind in ("ztf", "lognormal"):
            ratio, speed = (found.get(f"ragged_{part}.{kind}.{key}") for key in ("ratio_padded", "ragged_per_s"))
            if ratio is None or speed is None:
                line += [UNKNOWN, ""]
            else:
                low, high = ratio["spread"]
                line += [f"{ratio['value']:.2f} ({low:.2f} to {high:.2f})", f"{speed['value']:,.0f}"]
        row = found.get(f"ragged_{part}.ratio_padded")
        lines.append([*line, row["hardware"].split(",")[0] if row else ""])
    head = ["", "lengths of ZTF, times as fast", "curves/s", "log-normal lengths", "curves/s", "hardware"]
    return markdown(head, lines)
