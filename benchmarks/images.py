"""Tables of images. `python benchmarks/images.py PART ... --data FOLDER`

    digits    ViT and CNN on the 1,797 digits of scikit-learn, five folds
    mnist     the same on MNIST: 55,000 images for training, 5,000 for validation, 10,000 for testing
    pretrain  a masked autoencoder on the training images of MNIST, without labels
    fewshot   its value with 10 and 100 labels per class: fine-tuned, with a linear layer on top (probe), and against
              random weights; validation uses as few labels
    galaxies  ViT, Linformer ViT and ResNet-18 on 1,000, 10,000 and 100,000 simulated galaxies (--sizes); with --models
              vit4 the ViT on patches of 4 pixels instead of 8, with four times as many tokens
    lenses    ViT and ResNet-18 on simulated lenses (--number): values with uncertainty

FOLDER holds the four idx files of MNIST, and digits.npz (image, label) if scikit-learn is not installed. All models of
a part use the same images, batches, augmentations and optimizer. Each model takes the learning rate of a common grid
(--rates) with the best validation score of the first seed. All seeds are then evaluated on the test part. Runs are
trained side by side (--jobs). Complete runs are kept in --out, and the same command resumes from there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

from images_tasks import MODELS, STEPS, Digits, FewShot, Galaxies, Lenses, Mnist, Pretrain
from lightcurves_tasks import Part
from measure import ROOT
from pictures import STYLE, draw_hunger
from pool import Result, Task
from tuning import Tuning, measure, options_of, trained

PARTS: dict[str, Part] = {
    "digits": Digits(),
    "mnist": Mnist(),
    "pretrain": Pretrain(),
    "fewshot": FewShot(),
    "galaxies": Galaxies(),
    "lenses": Lenses(),
}


def work(task: Task) -> Result:
    """Train and evaluate one model."""
    return trained(PARTS[task["part"]], task)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--data", type=Path, help="folder with the idx files of MNIST")
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=list(STEPS), help="galaxies to train on")
    parser.add_argument(
        "--models", type=lambda text: text.split(","), default=list(MODELS)[:3], help="models of galaxies"
    )
    parser.add_argument("--number", type=int, default=50_000, help="lenses to train on")
    parser.add_argument("--epochs", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument(
        "--pictures", type=Path, default=ROOT / "docs" / "pictures", help="folder for the figure of galaxies"
    )
    options = options_of(parser, arguments, "images", "number of folds, of digits (at most 5)", jobs=10)
    if unknown := sorted(set(options.sizes) - set(STEPS)):
        parser.error(f"sizes are {', '.join(STEPS)}; found {', '.join(unknown)}")
    if unknown := sorted(set(options.models) - set(MODELS)):
        parser.error(f"models are {', '.join(MODELS)}; found {', '.join(unknown)}")
    for name in options.parts:
        PARTS[name].prepare(options)
        measure(Tuning(options, name, PARTS[name], "images.py"), work)
        if name == "galaxies":
            draw(options.results, options.out / "pictures" if options.tiny else options.pictures)


def draw(results: Path, folder: Path) -> None:
    """Draw the figure of the galaxies, if there are results."""
    rows = {row["id"]: row for row in json.loads(results.read_text())} if results.exists() else {}
    with matplotlib.rc_context(STYLE):
        if figure := draw_hunger(rows):
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(folder / "images-hunger.png", facecolor="white")


if __name__ == "__main__":
    main()
