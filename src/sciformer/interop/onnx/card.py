"""Description of an exported ONNX graph, as JSON and as README."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from ..._version import __version__
from ...run import Run
from ...tokens.protocols import Preprocessing
from .inputs import FEATURES, VALID_NAME, by_stream, exported_tokens, grid_shape, input_name, max_places

REQUIRED_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
OUTPUT_MEANINGS = {
    "probabilities": "class probabilities, in the order of `answers`; each row sums to 1",
    "logits": "logits, in the order of `answers`; their softmax gives the probabilities",
    "mean": "expected values, in the order of `answers`; value * `scale` + `shift` is in the units of the data",
    "std": "standard deviations of the mean; value * `scale` is in the units of the data",
    "quantiles": "quantiles of each value, in rising order; value * `scale` + `shift` is in the units of the data",
    "vector": "unit vector of the contrast; the product of two vectors is their cosine",
    FEATURES: "encoded tokens, to which a decoder attends",
    "summary": "pooled embedding of the sample, before the head",
}
CARD_TEMPLATE = """# {title}

{kind}, {parameters:,} parameters, answers: {answers}. Written by Sciformer {version}.

## Inputs

{inputs}
{shape}
`preprocessing.json` describes how to compute the columns from raw data, with every centre, scale and clip.

{ranges}## Outputs

{outputs}
```python
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
({first},) = session.run(["{first}"], {{{feed}}})
```

## Scores on the validation part

{scores}"""

RANGES_HEAD = """\
## Range of the training data

The graph does not check its input. 90 % of the values of each column were in this range; predictions for values on
another scale (8-bit and 16-bit images, GeV and MeV) are wrong.

"""
MASK_NOTE = "valid is true for tokens and false for padding; padding comes last"
PADDED_NOTE = """\
Tensors are padded with zeros to the longest sample; `valid` is true for tokens and false for padding, which comes
last. Any number of samples and tokens is allowed{most}."""
RAW_NOTE = """\
The input has raw values, as in the data: scaling and the cutting into tokens are part of the graph. Any number of
samples is allowed, {sizes}."""
GRID_NOTE = "The input has all {rows} x {columns} tokens of an image, row by row. Any number of samples is allowed."


def describe_graph(run: Run, made: Any, raw: Mapping[str, bytes], inner: Preprocessing | None = None) -> dict[str, Any]:
    """JSON description of a graph, and of its preprocessing graphs.

    made    ONNX model
    raw     preprocessing graph of each stream
    inner   preprocessing that is a part of the graph, which then takes raw samples
    """
    from onnx import ModelProto, TensorProto

    def tensor(value: Any) -> dict[str, Any]:
        kind = value.type.tensor_type
        shape = [size.dim_param or size.dim_value for size in kind.shape.dim]
        return {"name": value.name, "type": TensorProto.DataType.Name(kind.elem_type).lower(), "shape": shape}

    objective, tokens = run.assembly.objective, exported_tokens(run)

    def padding(stream: str) -> dict[str, Any] | None:
        mask = {"value": 0, "mask": input_name(run, stream, VALID_NAME), "meaning": MASK_NOTE}
        return None if inner or grid_shape(run, stream) else mask

    outputs = [tensor(value) for value in made.graph.output]
    for output in outputs:
        output["meaning"] = OUTPUT_MEANINGS.get(output["name"], "")
        if output["name"] in ("mean", "std", "quantiles") and "deviation" in objective.state:
            # In units of the data: x scale + shift.
            output["scale"] = objective.state["deviation"]
            output["shift"] = [0.0] * len(objective.answers) if output["name"] == "std" else objective.state["mean"]
    versions = {name: importlib.import_module(name).__version__ for name in ("torch", *REQUIRED_PACKAGES)}
    return {
        "format": 1,
        "made_by": {"sciformer": __version__, **versions},
        "opset": max(entry.version for entry in made.opset_import if entry.domain in ("", "ai.onnx")),
        "inputs": [tensor(value) for value in made.graph.input],
        "outputs": outputs,
        "preprocessing": {name: tensor(ModelProto.FromString(one).graph.input[0]) for name, one in raw.items()},
        "raw": None if inner is None else {"axes": list(inner.axes), "fixed": _fixed_sizes(run, inner)},
        "answers": objective.answers,
        "padding": by_stream(run, padding),
        "most_tokens": by_stream(run, lambda stream: max_places(run, stream) or tokens[stream].max_tokens),
        "profile": (run.assembly.profile or {}).get("columns", {}),
        "tokens": by_stream(run, lambda stream: tokens[stream].preprocessing()),
    }


def _fixed_sizes(run: Run, inner: Preprocessing) -> list[int] | None:
    """Sizes that raw samples must have; None if any size is allowed."""
    return list(inner.sizes[0]) if grid_shape(run) else None


def write_card(run: Run, about: Mapping[str, Any]) -> str:
    """Text of the README for the exported graph."""
    kinds = ", ".join(tokens.kind for tokens in run.assembly.tokens.values())
    shapes = {one["name"]: f"({', '.join(map(str, one['shape']))})" for one in (*about["inputs"], *about["outputs"])}
    inputs = "".join(f"- `{one['name']}`: {one['type']} {shapes[one['name']]}\n" for one in about["inputs"])
    outputs = "".join(f"- `{one['name']}` {shapes[one['name']]}: {one['meaning']}\n" for one in about["outputs"])
    scores = "".join(f"- {name}: {value:.4g}\n" for name, value in run.scores.items())
    used = run.assembly.compare()
    ranges = "".join(f"- `{name}`: {kind}, {ends}\n" for name, kind, ends in (used.usual_ranges() if used else ()))
    several = len(run.assembly.tokens) > 1

    def shape(stream: str) -> str:
        if about["raw"] is not None:
            fixed, axes = about["raw"]["fixed"], about["raw"]["axes"]
            sizes = [f"{axis} {size}" for axis, size in zip(axes, fixed or ())]
            return RAW_NOTE.format(sizes=f"with {', '.join(sizes)}" if sizes else "of any size")
        number, filled = about["most_tokens"][stream] if several else about["most_tokens"], grid_shape(run, stream)
        most = f"; in training a sample had at most {number} tokens" if number else ""
        note = PADDED_NOTE.format(most=most) if filled is None else GRID_NOTE.format(rows=filled[0], columns=filled[1])
        return f"Stream `{stream}`: {note}" if several else note

    for name, one in about["preprocessing"].items():
        size = f"({', '.join(map(str, one['shape']))})"
        inputs += f"\n`{name}` computes them from `{one['name']}`, {one['type']} {size}: raw values, as in the data.\n"
    feed = ", ".join(f'"{one["name"]}": {one["name"].replace(".", "_")}' for one in about["inputs"])
    return CARD_TEMPLATE.format(
        title=run.recipe.about.title or run.path.resolve().name,
        kind=f"{kinds} · {run.recipe.model.kind} · {run.recipe.objective.kind}",
        parameters=sum(weight.numel() for weight in run.model.parameters()),
        answers=", ".join(about["answers"]) or "only the summary",
        inputs=inputs,
        outputs=outputs,
        feed=feed,
        ranges=f"{RANGES_HEAD}{ranges}\n" if ranges else "",
        shape="\n".join(map(shape, run.assembly.tokens)),
        first=about["outputs"][0]["name"],
        scores=scores or "- no scores\n",
        version=__version__,
    )
