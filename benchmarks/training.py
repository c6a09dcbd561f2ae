"""Training steps against nanoGPT and Hugging Face; called by `speed.py`."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch

import nanogpt
from measure import Row, interleave
from run import blocks, engine_of
from sciformer.domains.text import layers as text_layers
from sides import Times, profile, recipe_of, row, switched, text


def train_once(options: argparse.Namespace, way: dict[str, Any]) -> Times:
    from transformers import GPT2Config, GPT2LMHeadModel

    device, sizes = "cuda", (50304, 1024, 768, 12, 12)
    batch, letters = 64, 50_257
    if options.tiny:
        device, sizes, batch, letters = "cpu", (512, 32, 32, 2, 2), 4, 500
    vocabulary, context, dim, depth, heads = sizes
    path, ids = text(4_000_000 if device == "cuda" else 40_000, letters)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    engine = engine_of(recipe_of(path, sizes, batch, device, way.get("recipe", {})), device)
    if way.get("ours", {}).get("residual"):
        _half_residual(engine.step.model)
    text_layers.LOGITS_AT_ONCE = way.get("ours", {}).get("chunk", text_layers.LOGITS_AT_ONCE)
    ours = blocks(engine, options.steps)
    with switched(way):
        ours()
    if options.profile:
        profile(ours)
    get_batch = nanogpt.batches(ids, context, batch, device)
    compiled = device == "cuda"
    gpt = nanogpt.GPT(*sizes).to(device)
    theirs = nanogpt.trainer(gpt, lambda call, x, y: call(x, y)[1], get_batch, device, compiled=compiled)
    if options.profile:
        profile(lambda: theirs(options.steps))
    config = GPT2Config(
        vocab_size=50257 if device == "cuda" else vocabulary, n_positions=context, n_embd=dim, n_layer=depth,
        n_head=heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    face: Any = GPT2LMHeadModel(config)
    face.to(device)
    other = nanogpt.trainer(face, lambda call, x, y: call(x, labels=x).loss, get_batch, device, compiled=compiled)
    calls: dict[str, Callable[[], Any]] = {
        "ours": ours,
        "nanogpt": lambda: theirs(options.steps),
        "hf": lambda: other(options.steps),
    }
    if options.only:
        calls = {"ours": ours}
    if device == "cuda":
        # The ceiling: products of 8192 x 8192 in bfloat16, in turns with the steps. Alone they heat the GPU, and slow.
        a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in "ab")
        calls["product"] = lambda: [a @ b for _ in range(10)]
    times = interleave(calls, options.repeats, device)
    times["tokens"] = [float(batch * context * options.steps)]
    times["flops"] = [times["tokens"][0] * (6 * (12 * depth * dim**2 + dim * vocabulary) + 6 * depth * context * dim)]
    if device == "cuda":
        times["MiB"] = [torch.cuda.max_memory_allocated() / 2**20]
    return times


def _half_residual(model: Any) -> None:
    """Keep the residual stream between blocks in bfloat16, as matrix products are."""
    model.entrance.register_forward_hook(lambda module, inputs, x: x.bfloat16())


def train_rows(samples: list[Times], options: argparse.Namespace, device: str) -> list[Row]:
    tokens = samples[0]["tokens"][0]
    settings: dict[str, Any] = {
        "settings": "124 M parameters, 64 x 1024 tokens a step, bfloat16 products, float32 weights, dropout 0; "
        "nanoGPT: compiled, no biases, 50304 tokens; Hugging Face: compiled, biases, 50257 tokens; same text",
        "MiB": round(max(sample.get("MiB", [0.0])[0] for sample in samples)),
    }
    rows = []
    for peer, bar in (("nanogpt", 1.05), ("hf", 1.3)):
        ratios = [b / a for sample in samples for a, b in zip(sample["ours"], sample[peer])]
        rows.append(row(f"gpt124m_train.ratio_{peer}", ratios, "x", options, device, bar=bar, **settings))
    for side, name in (("ours", "tokens_per_s"), ("nanogpt", "nanogpt_tokens_per_s"), ("hf", "hf_tokens_per_s")):
        speeds = [tokens / seconds for sample in samples for seconds in sample[side]]
        rows.append(row(f"gpt124m_train.{name}", speeds, "tokens/s", options, device, digits=0))
    if "product" in samples[0]:
        ceiling = 10 * 2 * 8192**3 / statistics.median(t for sample in samples for t in sample["product"])
        used = [sample["flops"][0] / t / ceiling for sample in samples for t in sample["ours"]]
        more: dict[str, Any] = {"ceiling_tflops": round(ceiling / 1e12, 1)}
        rows.append(row("gpt124m_train.ceiling_share", used, "share", options, device, **more))
    return rows


def train_cpu_once(options: argparse.Namespace, way: dict[str, Any]) -> Times:
    times: Times = {}
    sizes = {"small": ((66, 64, 128, 4, 4), 12, 20), "large": ((66, 256, 384, 6, 6), 12, 1)}
    if options.tiny:
        sizes = {"small": ((66, 16, 16, 2, 2), 4, 2)}
    for name, (shape, batch, steps) in sizes.items():
        path, ids = text(200_000, 64)
        engine = engine_of(recipe_of(path, shape, batch, "cpu", way.get("recipe", {})), "cpu")
        torch.manual_seed(0)
        get_batch = nanogpt.batches(ids, shape[1], batch, "cpu")
        theirs = nanogpt.trainer(
            nanogpt.GPT(*shape), lambda call, x, y: call(x, y)[1], get_batch, "cpu", compiled=False
        )
        calls = {f"{name} ours": blocks(engine, steps), f"{name} nanogpt": lambda: theirs(steps)}  # noqa: B023
        times |= interleave(calls, options.repeats if name == "small" else max(2, options.repeats // 4), "cpu")
    return times


def train_cpu_rows(samples: list[Times], options: argparse.Namespace, device: str) -> list[Row]:
    ratios: dict[str, list[float]] = {}
    for name in ("small", "large"):
        if f"{name} ours" in samples[0]:
            pairs = [zip(sample[f"{name} ours"], sample[f"{name} nanogpt"]) for sample in samples]
            ratios[name] = [b / a for pair in pairs for a, b in pair]
    said = "float32; small: 4 x 128, 12 x 64 tokens; large: 6 x 384, 12 x 256 tokens; nanoGPT as it runs on a CPU"
    more: dict[str, Any] = {"bar": 0.97, "settings": said}
    made = [row("gpt_train_cpu.ratio_nanogpt", ratios["small"], "x", options, device, **more)]
    if "large" in ratios:
        made.append(row("gpt_train_cpu.large.ratio_nanogpt", ratios["large"], "x", options, device, **more))
    return made
