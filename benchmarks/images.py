"""Tables of images. `python benchmarks/images.py PART ... --data FOLDER`

    digits    ViT and CNN on the 1,797 digits of scikit-learn, five folds
    mnist     the same on MNIST: 55,000 images to train on, 5,000 to choose, the 10,000 of its test part to judge
    pretrain  a masked autoencoder on the images of MNIST that are trained on, without labels
    fewshot   what that is worth with 10 and 100 labels of each class: fine-tuned, with a linear layer on top (probe),
              and against random weights; as few labels are used to choose
    galaxies  ViT, Linformer ViT and ResNet-18 on 1,000, 10,000 and 100,000 simulated galaxies (--sizes)
    lenses    ViT and ResNet-18 on simulated lenses (--number): values with uncertainty

FOLDER holds the four idx files of MNIST, and digits.npz (image, label) where scikit-learn is not installed. All models
of a part see the same images in the same number, batches and variations, with the same optimizer; each takes the rate
of the same grid (--rates) that is best in validation with the first seed; all seeds then are judged on what was kept
apart. Runs are trained side by side (--jobs); what is done is kept in --out, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from images_tasks import STEPS, Digits, FewShot, Galaxies, Lenses, Mnist, Pretrain
from lightcurves_tasks import Part
from measure import RESULTS
from pool import Result, Task
from tuning import Tuning, measure, trained

PARTS: dict[str, Part] = {
    "digits": Digits(),
    "mnist": Mnist(),
    "pretrain": Pretrain(),
    "fewshot": FewShot(),
    "galaxies": Galaxies(),
    "lenses": Lenses(),
}


def work(task: Task) -> Result:
    """Train and judge one model."""
    return trained(PARTS[task["part"]], task)


def main(arguments: list[str] | None = None) -> None:
    numbers = lambda kind: lambda text: [kind(word) for word in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--data", type=Path, help="folder with the idx files of MNIST")
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=list(STEPS), help="galaxies to train on")
    parser.add_argument("--number", type=int, default=50_000, help="lenses to train on")
    parser.add_argument("--epochs", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=0, help="updates, instead of those of the part")
    parser.add_argument("--rates", type=numbers(float), default=[3e-4, 1e-3, 3e-3])
    parser.add_argument("--pretrain-rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=numbers(int), default=[0, 1, 2])
    parser.add_argument("--folds", type=int, default=5, help="so many of the five, of digits")
    parser.add_argument("--jobs", type=int, default=10, help="runs at a time; 0: in this process")
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare the batches of a run")
    parser.add_argument("--compile", action="store_true", help="compile; worth it in long trainings")
    parser.add_argument("--device", default="")
    parser.add_argument("--tiny", action="store_true", help="a version of seconds, to try the script")
    parser.add_argument("--out", type=Path, default=Path("runs/images"))
    parser.add_argument("--results", type=Path, default=RESULTS / "images.json")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.sizes) - set(STEPS)):
        parser.error(f"sizes are {', '.join(STEPS)}; found {', '.join(unknown)}")
    if options.tiny:
        options.out /= "tiny"
        options.out.mkdir(parents=True, exist_ok=True)
        options.results = options.out / "rows.json"
    for name in options.parts:
        PARTS[name].prepare(options)
        measure(Tuning(options, name, PARTS[name], "images.py"), work)


if __name__ == "__main__":
    main()
