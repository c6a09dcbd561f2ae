"""scikit-learn estimators: its own checks, the numbers of a training on files, and mistakes."""

import gc
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import sciformer as sf
from sciformer.data.readers.simulation import write_simulation
from sciformer.domains.jets.simulate.jets import Jets
from sciformer.sklearn import TransformerClassifier, TransformerEmbedder, TransformerRegressor
from tests.data.readers.series.examples import long, objects, write_lists
from tests.errors import refuses

SMALL = {"dim": 16, "depth": 1, "learning_rate": 0.01, "changes": {"model.heads": 2, "train.warmup": 2}}
NEEDS_LEARNING = ("check_classifiers_train", "check_classifiers_classes", "check_regressors_train")  # compare scores
NOT_APPLICABLE = {
    "check_sample_weight_equivalence_on_dense_data": "a sample of weight 0 is still in a batch, whose order is random",
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    torch.set_num_threads(1)


@parametrize_with_checks(
    [
        TransformerClassifier(steps=25, **SMALL),
        TransformerRegressor(steps=25, **SMALL),
        TransformerEmbedder(steps=2, **SMALL),
    ],
    expected_failed_checks=lambda estimator: NOT_APPLICABLE,
)
@pytest.mark.filterwarnings("ignore")
def test_checks_of_scikit_learn(estimator, check):
    """Its own checks; most of them only ask for a fit, not for a good fit."""
    name = check.func.__name__
    check(estimator if name in NEEDS_LEARNING else clone(estimator).set_params(steps=2))


def digits(number=80):
    images, labels = load_digits(return_X_y=True)
    return images[:number].reshape(-1, 8, 8), labels[:number]


def moods(number=40):
    texts = [f"a {word} film about {n}" for n in range(number // 2) for word in ("good", "bad")]
    return texts, ["pos", "neg"] * (number // 2)


def same_weights(one, other):
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values())
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def trained_on_files(estimator, **data):
    """A training on files with the recipe of an estimator."""
    recipe = estimator.run_.recipe.change({f"data.{key}": value for key, value in data.items()})
    folder = estimator.run_.path.parent / "from-files"
    return sf.train(sf.Recipe.from_dict(recipe.to_dict()), folder, show=False, report=False)


def test_images_have_the_numbers_of_a_training_on_files(tmp_path):
    images, labels = digits()
    found = TransformerClassifier(steps=3, **SMALL).fit(images, labels)
    np.savez(tmp_path / "digits.npz", image=images, label=labels.astype(str))
    run = trained_on_files(found, files=[str(tmp_path / "digits.npz")])
    assert same_weights(found.run_, run)
    answers = run.predict({"image": images})
    assert np.array_equal(found.predict_proba(images), normalised(answers["probabilities"]))
    assert found.predict(images).tolist() == [int(name) for name in answers["class"]]


def normalised(probabilities):
    found = probabilities.astype(np.float64)
    return found / found.sum(1, keepdims=True)


def test_texts_have_the_numbers_of_a_training_on_files(tmp_path):
    texts, labels = moods()
    found = TransformerClassifier(steps=3, **SMALL).fit(texts, labels)
    rows = [f"{text}\t{label}" for text, label in zip(texts, labels)]
    (tmp_path / "moods.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    run = trained_on_files(found, files=[str(tmp_path / "moods.tsv")])
    assert same_weights(found.run_, run)
    assert found.predict(texts).tolist() == run.predict({"text": texts})["class"].tolist()


@pytest.fixture(scope="module")
def jets_of_a_frame(tmp_path_factory):
    """A fitted estimator, with its frame and classes."""
    pandas = pytest.importorskip("pandas")
    path = tmp_path_factory.mktemp("jets") / "jets.parquet"
    write_simulation(Jets(kind="jets", number=60, classes=["QCD", "Tbqq"], seed=1), path)
    frame = pandas.DataFrame(pq.read_table(path).to_pydict())
    labels = frame.pop("label")
    changes = {"tokens.max_tokens": 12, "tokens.widths": [8], "tokens.pair_widths": [8], "model.heads": 2}
    changes |= {"model.dim": 8, "model.depth": 1, "train.warmup": 1, "objective.efficiencies": {}}
    return TransformerClassifier("jets/part", steps=2, changes=changes).fit(frame, labels), frame, labels


def test_frames_of_jets_with_a_recipe(jets_of_a_frame, tmp_path):
    """Ragged columns of a frame, a cross-validation over its rows, and the numbers of a training on files."""
    found, frame, labels = jets_of_a_frame
    pq.write_table(pa.Table.from_pandas(frame.assign(label=labels)), tmp_path / "jets.parquet")
    assert found.predict_proba(frame.iloc[:5]).shape == (5, 2)
    assert set(found.predict(frame)) <= set(labels)
    run = trained_on_files(found, files=[str(tmp_path / "jets.parquet")])
    assert same_weights(found.run_, run)
    assert np.isfinite(cross_val_score(clone(found), frame, labels, cv=2)).all()
    changes = {**found.changes, "data.select": "jet_pt > 700"}
    selective = clone(found).set_params(changes=changes).fit(frame, labels)
    with refuses(60, key="X"):
        selective.predict(frame)


def test_frames_of_light_curves_with_a_recipe(tmp_path):
    """A row for each star with lists of observations, and the numbers of a training on files."""
    pandas = pytest.importorskip("pandas")
    write_lists(tmp_path / "stars.parquet", objects(60))
    frame = pandas.DataFrame(pq.read_table(tmp_path / "stars.parquet").to_pydict())
    labels = frame.pop("type")
    changes = {"data": {"kind": "series", "time": "mjd"}, "tokens.window": 16, "train.warmup": 1}
    changes |= {"model.heads": 2, "train.device": "cpu"}
    stars = TransformerClassifier("lightcurves/transformer", steps=2, dim=16, depth=1, changes=changes)
    found = clone(stars).fit(frame, labels)
    assert found.predict_proba(frame.iloc[:5]).shape == (5, 2)
    run = trained_on_files(found, files=[str(tmp_path / "stars.parquet")])
    assert same_weights(found.run_, run)
    assert found.predict(frame).tolist() == run.predict(tmp_path / "stars.parquet")["class"].tolist()
    assert np.isfinite(cross_val_score(stars, frame, labels, cv=2)).all()


def test_rows_that_are_no_samples():
    """A row for each observation, where scikit-learn expects an answer for each row."""
    pandas = pytest.importorskip("pandas")
    table = long(objects(60))
    frame, changes = pandas.DataFrame(table), {"data": {"kind": "series", "time": "mjd"}, "tokens.window": 16}
    labels = frame.pop("type")
    options = {"steps": 1, "dim": 16, "depth": 1, "changes": {**changes, "model.heads": 2}}
    found = TransformerClassifier("lightcurves/transformer", **options).fit(frame, labels)
    with refuses(len(frame), 60, key="X"):
        found.predict(frame)


def test_values_with_their_deviation():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5))
    y = 10 + 3 * X[:, 0]
    found = TransformerRegressor(steps=80, **SMALL).fit(X, y)
    mean, deviation = found.predict(X, return_std=True)
    assert found.score(X, y) > 0.5
    assert (deviation > 0).all()
    assert mean.shape == (120,)


def test_pipeline_and_grid_search():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) * [1, 100, 1e4, 1e6]
    y = X[:, 0] > 0
    model = make_pipeline(StandardScaler(), TransformerClassifier(steps=2, **SMALL))
    search = GridSearchCV(model, {"transformerclassifier__depth": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_["transformerclassifier__depth"] in (1, 2)
    assert search.predict(X).dtype == bool


def test_vectors_without_labels(tmp_path):
    images, _ = digits(40)
    found = TransformerEmbedder(steps=2, **SMALL).fit(images)
    vectors = found.transform(images)
    assert vectors.shape == (40, 16)
    assert len(found.get_feature_names_out()) == 16
    again = TransformerEmbedder(recipe=str(found.run_.path)).fit(images)
    assert np.array_equal(again.transform(images), vectors), "a trained run needs no training"
    texts, _ = moods()
    assert TransformerEmbedder(steps=2, **SMALL).fit_transform(texts).shape == (40, 16)


def test_a_pickle_holds_the_model_and_folders_are_removed():
    images, labels = digits(40)
    found = TransformerClassifier(steps=2, **SMALL).fit(images, labels)
    expected, folder = found.predict_proba(images), found.run_.path
    text = pickle.dumps(found)
    del found
    gc.collect()
    assert not folder.exists()
    assert np.array_equal(pickle.loads(text).predict_proba(images), expected)


def test_a_second_fit_starts_anew(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 2
    found = TransformerClassifier(steps=2, run=tmp_path / "run", **SMALL).fit(X, y)
    assert found.run_.report().exists()
    found.fit(X[:44], y[:44])
    assert found.predict(X[44:]).shape == (6,)
    with refuses(hint="fresh"):  # the data changed
        TransformerClassifier(steps=2, run=tmp_path / "run", warm_start=True, **SMALL).fit(X, y)


def test_weights_of_samples():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    even = TransformerClassifier(steps=2, **SMALL).fit(X, y, sample_weight=np.ones(60))
    uneven = TransformerClassifier(steps=2, **SMALL).fit(X, y, sample_weight=1 + 9.0 * y)
    assert even.predict_proba(X)[:, 1].mean() < uneven.predict_proba(X)[:, 1].mean()


def test_a_rare_class_is_never_held_out():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.repeat([0, 1, 2], [40, 19, 1])
    found = TransformerClassifier(steps=2, **SMALL).fit(X, y)
    assert found.predict_proba(X).shape == (60, 3)
    assert found.run_.about["samples"] == {"train": 60}


MISTAKES = {
    "one class": (lambda: TransformerClassifier().fit([[1.0], [2.0]], [0, 0]), ("0",), "y"),
    "a single text": (lambda: TransformerClassifier().fit("a text", [0]), (), "X"),
    "a table without a recipe": (lambda: TransformerClassifier().fit({"px": [[1.0], [2.0, 3.0]]}, [0, 1]), (), None),
    "other lengths": (lambda: TransformerClassifier().fit(["a", "b", "c"], [0, 1]), (3, 2), "y"),
    "weights of zero": (lambda: TransformerClassifier().fit([[1.0], [2.0]], [0, 1], [0, 0]), (), "sample_weight"),
    "another recipe": (
        lambda: TransformerClassifier("jets/prat").fit({"px": [1.0, 2.0]}, [0, 1]),
        ("jets/prat",),
        None,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered(name):
    call, mentions, key = MISTAKES[name]
    with refuses(*mentions, key=key):
        call()


@pytest.mark.parametrize("estimator", [TransformerClassifier(), TransformerRegressor(), TransformerEmbedder()])
def test_use_before_fit(estimator):
    with pytest.raises(NotFittedError):
        getattr(estimator, "transform" if hasattr(estimator, "transform") else "predict")([[1.0]])


WRONG_FRAMES = {
    "no column": (lambda frame: frame.drop(columns="part_px"), ["part_px"]),
    "strings": (lambda frame: frame.assign(part_px="a"), ["part_px"]),
    "objects": (lambda frame: frame.assign(part_px=[[object()]] * 60), ["part_px", "object"]),
    "empty": (lambda frame: frame.iloc[:0], ["rows"]),
}


@pytest.mark.parametrize("name", WRONG_FRAMES)
def test_wrong_frames(jets_of_a_frame, name):
    (found, frame, labels), (change, mentions) = jets_of_a_frame, WRONG_FRAMES[name]
    wrong = change(frame)
    with refuses(*mentions):
        found.predict(wrong)
    with refuses(*mentions):
        clone(found).fit(wrong, labels[: len(wrong)])
