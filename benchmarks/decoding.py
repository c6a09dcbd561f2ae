"""Decoding speed against Hugging Face's `generate`; called by `speed.py`."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from measure import Row, interleave
from sciformer.assembly import Assembly
from sciformer.generation.generate import generate, generate_many
from sciformer.recipe import Recipe
from sides import Times, profile, recipe_of, row, text, wall

NEW, PROMPT = 256, 16
DRAWN: dict[str, Any] = {"temperature": 0.8, "top_k": 50}


class Stage:
    """Interface of a run for `generate`, with random weights."""

    def __init__(self, recipe: Recipe, device: str) -> None:
        self.recipe, self.device = recipe, torch.device(device)
        self.assembly = Assembly.open(recipe)
        torch.manual_seed(0)
        self.model = self.assembly.network().to(device).eval()


def decode_once(options: argparse.Namespace, way: dict[str, Any]) -> Times:
    from transformers import GPT2Config, GPT2LMHeadModel

    device = "cpu" if options.part == "decode-cpu" or options.tiny else "cuda"
    new = 64 if device == "cpu" else NEW
    sizes, letters = (50304, 1024, 768, 12, 12), 50_257
    if options.tiny:
        sizes, letters, new = (512, 64, 32, 2, 2), 500, 8
    vocabulary, context, dim, depth, heads = sizes
    path, _ = text(400_000 if not options.tiny else 20_000, letters)
    stage: Any = Stage(recipe_of(path, sizes, 8, device, way.get("recipe", {})), device)
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=context, n_embd=dim, n_layer=depth, n_head=heads, bos_token_id=0,
        eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    face: Any = GPT2LMHeadModel(config)
    face.to(device, torch.bfloat16 if device == "cuda" else torch.float32).eval()
    beginning = Path(path).read_text("utf-8")
    times: Times = {}
    for batch in (1,) if options.part == "decode-cpu" else (1, 32):
        prompts = [beginning[i : i + PROMPT] for i in range(batch)]
        ids = torch.randint(2, vocabulary, (batch, PROMPT), device=device)

        def ours(wishes: dict[str, Any], prompts: list[str] = prompts) -> None:
            more = {"stop": ["\n\n", "The end"], "seed": 0, **wishes, **way["ours"]}
            if len(prompts) == 1:
                found = ["".join(generate(stage, prompts[0], new, **more))]
            else:
                found = generate_many(stage, prompts, new, **more)
            assert all(len(one) == new for one in found)

        def theirs(wishes: dict[str, Any], ids: torch.Tensor = ids) -> None:
            with torch.inference_mode():
                made = face.generate(
                    ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, **wishes
                )
            assert made.shape[1] == PROMPT + new

        calls: dict[str, Callable[[], Any]] = {
            f"b{batch} ours": lambda: ours(DRAWN),
            f"b{batch} hf": lambda: theirs({"do_sample": True, **DRAWN}),
            f"b{batch} ours greedy": lambda: ours({"temperature": 0}),
            f"b{batch} hf greedy": lambda: theirs({"do_sample": False}),
        }
        if options.part == "decode":  # one step to compile
            calls = {name: call for name, call in calls.items() if "greedy" not in name}
        if options.only:
            calls = {name: call for name, call in calls.items() if "hf" not in name}
        started = time.perf_counter()
        calls[f"b{batch} ours"]()
        times[f"b{batch} first"] = [time.perf_counter() - started]  # with compiling and recording
        if options.profile:
            profile(calls[f"b{batch} ours"])
        times |= wall(calls, options.repeats)
    times["bytes"] = [2.0 * sum(weight.numel() for weight in stage.model.parameters()) * (1 if device == "cuda" else 2)]
    times["new"] = [float(new)]
    if device == "cuda":
        source = torch.empty(1 << 30, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        copied = interleave({"copy": lambda: [target.copy_(source) for _ in range(10)]}, 10, device)["copy"]
        times["bandwidth"] = [10 * 2 * len(source) / seconds for seconds in copied]
    return times


def decode_rows(samples: list[Times], options: argparse.Namespace, device: str) -> list[Row]:
    new = samples[0]["new"][0]
    said = f"124 M parameters, {new:.0f} tokens after {PROMPT}, temperature 0.8, top_k 50; ours with stop strings and "
    said += "its text; Hugging Face: generate with its dynamic cache, as it is; "
    more: dict[str, Any] = {"settings": said + ("both in bfloat16" if device == "cuda" else "both in float32")}
    rows = []
    for batch, bar in ((1, 10), (32, 4)) if options.part == "decode" else ((1, 0.97),):
        name = f"decode_b{batch}" if options.part == "decode" else "decode_cpu"
        for suffix in ("", " greedy") if options.part == "decode-cpu" else ("",):
            sides = [(sample[f"b{batch} ours{suffix}"], sample[f"b{batch} hf{suffix}"]) for sample in samples]
            ratios = [b / a for ours, theirs in sides for a, b in zip(ours, theirs)]
            tag = suffix.replace(" ", ".")
            rows.append(row(f"{name}{tag}.ratio_hf", ratios, "x", options, device, bar=bar, **more))
            for side, values in (("", [ours for ours, _ in sides]), (".hf", [theirs for _, theirs in sides])):
                step = [1000 * seconds / new for taken in values for seconds in taken]
                rows.append(row(f"{name}{tag}{side}.ms_a_token", step, "ms", options, device, better="lower", **more))
        if "bandwidth" in samples[0]:
            bandwidth = statistics.median(found for sample in samples for found in sample["bandwidth"])
            bound = samples[0]["bytes"][0] / bandwidth
            share = [bound * new / seconds for sample in samples for seconds in sample[f"b{batch} ours"]]
            note: dict[str, Any] = {"bound_us": round(bound * 1e6, 1), "TB_per_s": round(bandwidth / 1e12, 2)}
            rows.append(row(f"{name}.bound_share", share, "share", options, device, **note, **more))
    return rows
