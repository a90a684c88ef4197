#!/usr/bin/env python3
"""Compares the gradients of libflashdma_bwd and of PyTorch's flash backend (FA2) with float64, on the same tensors.

    torch_flash_accuracy.py build/.../libflashdma_bwd.so --commit <commit> --json tests/gpu/torch_flash_accuracy.json

The bar: no relative error of ours is more than 1.25 times theirs, on every problem of problem_list(). The backend takes no mask and no bias
of the library's kinds, so there are none. Both backwards read PyTorch's own output and logsumexp. Where an exact gradient is 0, as dQ and dK
of a single key are, there is no relative error and no ratio: ours must be nothing but rounding.

tests/gpu/torch_flash_accuracy.json is where the result is committed. A scale of null is 1/sqrt(d); layout is the order of the tensors in
memory; an error or ratio of null is none, or not finite. skipped has what PyTorch's flash backend refused, in its words, or computed to
something that is not finite. FLASHDMA_BWD_ARCH in the environment has the library run another architecture's kernels; the file that says
so is torch_flash_accuracy_sm80.json.

Needs a shared build of the library, PyTorch and a GPU. Exit code: 0 if the bar holds everywhere, 1 if not (a NaN is above it, and so is a
problem that PyTorch computes and we do not), 2 for wrong usage or where nothing can be compared.
"""

import argparse
import ctypes
import dataclasses
import datetime
import itertools
import json
import math
import os
import re
import sys
import time
import warnings

from flashdma_bwd_ctypes import Arguments, load, tensor

BAR = 1.25
VANISHED = 1e-9  # root mean square below which an exact gradient is 0: inputs have variance 1
ROUNDING = 1e-3  # and the most that ours may be then
GRADIENTS = ("dq", "dk", "dv")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    type: str
    b: int = 2
    h: int = 4
    hk: int = 4
    sq: int
    sk: int
    d: int
    causal: bool  # aligned bottom-right
    scale: float | None = None
    layout: str = "bhsd"

    def __str__(self):
        text = f"{self.type} d={self.d} b={self.b} h={self.h} hk={self.hk} sq={self.sq} sk={self.sk}"
        text += " causal" if self.causal else ""
        text += f" scale={self.scale}" if self.scale else ""
        return text if self.layout == "bhsd" else f"{text} {self.layout}"


def problem_list():
    """What both can do: head dims, lengths, heads, scales and layouts, each full and causal, in both types."""

    def equal(*lengths):
        return [{"sq": s, "sk": s} for s in lengths]

    unequal = [{"sq": sq, "sk": sk} for sq, sk in ((1, 1000), (65, 1000), (333, 1024), (1000, 127), (1024, 333), (333, 1))]
    shapes = [{"d": d} | l for d in (32, 64, 96, 128, 192, 256) for l in equal(333, 1024)]
    shapes += [{"d": d} | l for d in (40, 72, 80, 112, 160, 224) for l in equal(333)]  # no bucket's size
    shapes += [{"d": d, "b": 4, "h": 8, "hk": 8} | l for d in (64, 128) for l in equal(1, 63, 65, 127, 1000) + unequal]
    shapes += [{"d": d, "h": 8, "hk": hk} | l for d in (64, 128, 256) for hk in (2, 1) for l in equal(333) + unequal[:4]]
    shapes += [{"d": d, "b": 1, "h": 2, "hk": 2} | l for d in (64, 128, 256) for l in equal(4096)]
    shapes += [{"d": d, "scale": scale} | l for d in (64, 128) for scale in (0.05, 0.3) for l in equal(333)]
    shapes += [{"d": d, "h": 8, "hk": hk, "layout": "bshd"} | l for d in (64, 128) for hk in (8, 2) for l in equal(333) + unequal[1:2]]
    every = itertools.product(("bf16", "fp16"), shapes, (False, True))
    return [Problem(type=type_, causal=causal, **shape) for type_, shape, causal in every]


class Refused(Exception):
    """A problem that the library, or PyTorch's flash backend, does not compute; its text says why."""


def ours(torch, library, p, q, k, v, out, lse, d_out):
    """dQ, dK, dV of the library; raises Refused."""
    a = Arguments()
    library.flashdma_bwd_arguments_init(ctypes.byref(a))
    a.data_type = 0 if p.type == "fp16" else 1
    a.batch, a.heads, a.heads_kv, a.seqlen_q, a.seqlen_k, a.head_dim = p.b, p.h, p.hk, p.sq, p.sk, p.d
    a.causal = int(p.causal)
    a.scale = p.scale or 0
    gradients = [torch.full_like(t, math.nan) for t in (q, k, v)]  # what is not written shows
    a.q, a.k, a.v, a.out, a.d_out = map(tensor, (q, k, v, out, d_out))
    a.d_q, a.d_k, a.d_v = map(tensor, gradients)
    a.lse = lse.data_ptr()
    a.lse_stride_batch, a.lse_stride_head, a.lse_stride_row = lse.stride()

    def check(code):
        if code != 0:
            raise Refused(library.flashdma_bwd_last_message().decode())

    size = ctypes.c_size_t()
    check(library.flashdma_bwd_workspace_size(ctypes.byref(a), ctypes.byref(size)))
    workspace = torch.empty(size.value, dtype=torch.uint8, device=q.device)
    check(library.flashdma_bwd_backward(ctypes.byref(a), workspace.data_ptr(), size.value, torch.cuda.current_stream().cuda_stream))
    torch.cuda.synchronize()
    return gradients


def flash(torch, p, q, k, v, d_out, expanded):
    """Output, logsumexp and gradients of PyTorch's flash backend. `expanded`: on copies of K and V for each head, whose gradients
    autograd sums over the group."""
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    inputs = [leaves[0]] + [t.repeat_interleave(p.h // p.hk, 1) if expanded else t for t in leaves[1:]]
    # is_causal is aligned top-left, and the flash backend refuses it with unequal lengths; the operator is aligned bottom-right.
    mask = torch.nn.attention.bias.causal_lower_right(p.sq, p.sk) if p.causal and p.sq != p.sk else None
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        attention = torch.nn.functional.scaled_dot_product_attention(
            *inputs, attn_mask=mask, is_causal=p.causal and mask is None, scale=p.scale, enable_gqa=p.hk != p.h and not expanded)
        gradients = torch.autograd.grad(attention, leaves, d_out)
    with torch.no_grad():
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention(*inputs, 0.0, p.causal, scale=p.scale)[:2]
    return out, lse, gradients


def theirs(torch, p, *tensors):
    """flash(), and how K and V were given where not as they are; raises Refused."""
    reasons = []
    for expanded in (False, True) if p.hk != p.h else (False,):
        with warnings.catch_warnings(record=True) as said:  # the backend warns of what it misses, then raises
            warnings.simplefilter("always")
            try:
                result = flash(torch, p, *tensors, expanded)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                said = [str(warning.message).split(" (Triggered")[0] for warning in said]
                reasons.append(" ".join([str(error).splitlines()[0]] + said))
                continue
            finally:
                torch.cuda.synchronize()  # a failed kernel is no refusal, and raises here
        return *result, f"K and V expanded, as enable_gqa was refused: {reasons[0]}" if expanded else None
    raise Refused(reasons[-1])


def exact(torch, p, q, k, v, d_out):
    """The gradients in float64. A query without keys has P = 0."""
    leaves = [t.double().requires_grad_() for t in (q, k, v)]
    q, k, v = leaves[0], *(t.repeat_interleave(p.h // p.hk, 1) for t in leaves[1:])
    scores = q @ k.transpose(-1, -2) * (p.scale or 1 / math.sqrt(p.d))
    every = torch.ones(p.sq, p.sk, dtype=torch.bool, device=q.device)
    hidden = every.triu(1 + p.sk - p.sq) if p.causal else ~every
    probabilities = torch.softmax(scores.masked_fill(hidden, -1e300), -1).masked_fill(hidden, 0)
    return torch.autograd.grad(probabilities @ v, leaves, d_out.double())


def root_mean_square(t):
    return t.square().mean().sqrt().item()


def compare(reference, gradients, other_gradients):
    """Relative errors and their ratios, None where the exact gradient is 0, and whether they are within the bar."""
    mine, other, ratio, fine = {}, {}, {}, True
    for name, r, g, o in zip(GRADIENTS, reference, gradients, other_gradients):
        size, g_error, o_error = root_mean_square(r), root_mean_square(g.double() - r), root_mean_square(o.double() - r)
        if size < VANISHED:
            mine[name] = other[name] = ratio[name] = None
            fine = fine and g_error <= ROUNDING
            continue
        mine[name], other[name] = g_error / size, o_error / size
        ratio[name] = g_error / o_error if o_error else (math.inf if g_error else 1.0)
        fine = fine and ratio[name] <= BAR  # NaN is not
    return {"ours": mine, "theirs": other, "ratio": ratio, "pass": fine}


def measure(torch, library, p):
    """The record of a problem; raises Refused where PyTorch's flash backend does not compute it."""
    torch.manual_seed(0)
    dtype = torch.float16 if p.type == "fp16" else torch.bfloat16

    def normal(heads, rows):
        shape = (p.b, rows, heads, p.d) if p.layout == "bshd" else (p.b, heads, rows, p.d)
        t = torch.randn(shape, dtype=dtype, device="cuda")
        return t.transpose(1, 2) if p.layout == "bshd" else t

    q, k, v, d_out = normal(p.h, p.sq), normal(p.hk, p.sk), normal(p.hk, p.sk), normal(p.h, p.sq)
    out, lse, their_gradients, note = theirs(torch, p, q, k, v, d_out)
    if not all(g.isfinite().all() for g in their_gradients):
        raise Refused("its gradients are not finite")
    none = dict.fromkeys(GRADIENTS)
    record = dataclasses.asdict(p) | {"ours": none, "theirs": none, "ratio": none, "pass": False}
    if note:
        record["note"] = note
    try:
        record |= compare(exact(torch, p, q, k, v, d_out), ours(torch, library, p, q, k, v, out, lse, d_out), their_gradients)
    except Refused as refusal:
        record["note"] = f"not computed by the library: {refusal}"
    return record


def driver_version():
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return re.search(r"\d+(\.\d+)+", file.readline())[0]
    except (OSError, TypeError):
        return "unknown"


def rounded(record):
    """Four digits are enough for a reader; JSON has no NaN."""
    def number(x):
        return float(f"{x:.4g}") if x is not None and math.isfinite(x) else None

    return record | {key: {name: number(x) for name, x in record[key].items()} for key in ("ours", "theirs", "ratio")}


def write_json(path, head, problems, skipped):
    """A line for each problem."""
    parts = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for name, rows in (("problems", map(rounded, problems)), ("skipped", skipped)):
        lines = ",\n".join("    " + json.dumps(row, allow_nan=False) for row in rows)
        parts.append(f'  "{name}": [\n{lines}\n  ]' if lines else f'  "{name}": []')
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(parts) + "\n}\n")


def line(p, record):
    ratios = " ".join(f"{'-':>5}" if x is None else f"{x:5.3f}" for x in record["ratio"].values())
    return f"{p!s:<72} {ratios}{'' if record['pass'] else '   fails'}{'   ' + record['note'] if 'note' in record else ''}"


def run(torch, library):
    """Compares, prints, and returns the records and what was skipped."""
    problems, skipped = [], []
    print(f"{'problem':<72} ratio of errors, ours to PyTorch's: dQ dK dV")
    for p in problem_list():
        try:
            problems.append(measure(torch, library, p))
            print(line(p, problems[-1]), flush=True)
        except Refused as refusal:
            skipped.append({"problem": str(p), "reason": str(refusal)})
            print(f"{p!s:<72} skipped, not done by PyTorch's flash backend: {refusal}", flush=True)
    return problems, skipped


def parse_command_line():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", help="path of libflashdma_bwd.so")
    parser.add_argument("--json", metavar="FILE", help="write the result to this file")
    parser.add_argument("--commit", default="unknown", help="what the library was built from, for the result")
    arguments = parser.parse_args()
    if arguments.json and not os.path.isdir(os.path.dirname(os.path.abspath(arguments.json))):
        parser.error(f"--json: there is no folder for {arguments.json}")
    return parser, arguments


def main():
    parser, arguments = parse_command_line()
    try:
        library = load(arguments.library)
        import torch
        import torch.nn.attention.bias  # noqa: F401  a part that torch does not import itself
    except (OSError, AttributeError, ImportError) as error:  # no library, another library, no PyTorch
        parser.error(str(error))
    if not torch.cuda.is_available():
        parser.error("no GPU here")

    start = time.monotonic()
    problems, skipped = run(torch, library)
    if arguments.json:
        head = {"gpu": torch.cuda.get_device_name(0), "driver": driver_version(), "pytorch": torch.__version__,
                "architecture": os.environ.get("FLASHDMA_BWD_ARCH", "the GPU's"), "commit": arguments.commit,
                "table_hash": library.flashdma_bwd_table_hash().decode(), "date": datetime.date.today().isoformat(), "bar": BAR}
        write_json(arguments.json, head, problems, skipped)
    failures = sum(not record["pass"] for record in problems)
    print(f"{len(problems)} problems in {time.monotonic() - start:.0f} s, {len(skipped)} skipped")
    if not problems:
        return 2
    largest = max((x for record in problems for x in record["ratio"].values() if x is not None), default=math.nan)
    if failures:
        print(f"{failures} problems fail: above {BAR} times PyTorch's error, or not computed")
    else:
        print(f"every error is at most {largest:.3f} times PyTorch's")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
