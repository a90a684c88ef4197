#!/usr/bin/env python3
"""Times the backward of PyTorch's attention on the problems of flashdma-bench, with the same method and the same JSON fields.

    pytorch_yardstick.py --set dense --backend flash --backend cudnn --json yardstick.json
    pytorch_yardstick.py --set dense --with build/release/runtime/bench/flashdma-bench --json both.json
    pytorch_yardstick.py --with flashdma_bwd=PATH --with flashdma_bwd_ampere=build/ampere/bench/runtime/bench/flashdma-bench

The second form also runs flashdma-bench, in the same minutes on the same GPU, and prints both side by side; the third runs several
builds of it, each result under the name of its build. Only results of flashdma_bwd, which is the name where none is given, are this
library's to the reader of results; others stand beside, as PyTorch's do. Problems and their text are flashdma-bench's; a backend that cannot do one (PyTorch's flash and cuDNN backends take no bias of this kind
and no mask) says so. Only the backward is timed: the forward ran before, its graph is kept.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from measuring import count, duration, write_json

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
MOST_CALLS_PER_SAMPLE = 64
MOST_COPIES = 16


def dense_set():
    """16K tokens, h * d as near 2048 as it can be, as in flashdma-bench."""
    return [
        f"b={16384 // s} h={(2048 + d // 2) // d} d={d} s={s}{causal}"
        for d in (64, 96, 128, 192, 256)
        for s in (2048, 8192, 16384)
        for causal in ("", " causal")
    ]


SETS = {
    "dense": dense_set,
    "masked": lambda: [f"b=1 h=16 hk=4 d=128 s=8192 causal bias=key mask=topw:{w}" for w in (4096, 1024, 512, 64)],
    "small": lambda: [f"b=1 h=2 hk=1 d=64 s={s} causal" for s in (256, 512, 1024, 2048, 4096)],
}


def parse_problem(text):
    """The fields of a problem; words that PyTorch's fused backends cannot honour are listed under "refused"."""
    problem = {"b": 1, "h": 16, "d": 128, "s": 4096, "causal": False, "fp16": False, "refused": []}
    for word in text.split():
        key, _, value = word.partition("=")
        if key in ("b", "h", "hk", "d", "s", "sq", "sk"):
            problem[key] = int(value)
        elif word in ("causal", "fp16"):
            problem[word] = True
        elif word != "bf16":
            problem["refused"].append(word)
    problem.setdefault("hk", problem["h"])
    # As in flashdma-bench: as many keys as queries where nothing else is said.
    problem.setdefault("sq", problem["s"])
    problem.setdefault("sk", problem["sq"])
    if problem["causal"] and problem["sq"] != problem["sk"]:
        problem["refused"].append("causal with sq != sk")
    return problem


def make_copy(problem):
    """Inputs, the graph of a forward, and a gradient: all that a backward reads."""
    dtype = torch.float16 if problem["fp16"] else torch.bfloat16

    def normal(heads, seqlen):
        rows = torch.randn(problem["b"], seqlen, heads, problem["d"], device="cuda", dtype=dtype)
        return rows.transpose(1, 2)  # the memory of [b, s, h, d], which flashdma-bench uses too

    q = normal(problem["h"], problem["sq"]).requires_grad_()
    k = normal(problem["hk"], problem["sk"]).requires_grad_()
    v = normal(problem["hk"], problem["sk"]).requires_grad_()
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=problem["causal"], enable_gqa=problem["h"] != problem["hk"]
    )
    return out, (q, k, v), torch.randn_like(out)


def time_problem(problem, backend, samples, shortest_sample_ms, sustain):
    """Median and fastest milliseconds of a backward."""
    element_count = problem["b"] * problem["d"] * (problem["sq"] * problem["h"] + problem["sk"] * problem["hk"])
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    copies = []
    with sdpa_kernel(BACKENDS[backend]):
        for _ in range(min(MOST_COPIES, 2 * l2_bytes // (8 * element_count) + 1)):
            copies.append(make_copy(problem))
    turn = 0

    def run(calls):
        nonlocal turn
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            out, inputs, gradient = copies[turn]
            turn = (turn + 1) % len(copies)
            torch.autograd.grad(out, inputs, gradient, retain_graph=True)
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / calls

    once = run(1)
    elapsed = 0.0
    while elapsed < 1000 * sustain:
        calls = max(1, min(200, int(20 / once)))
        once = run(calls)
        elapsed += once * calls
    calls = max(1, min(MOST_CALLS_PER_SAMPLE, math.ceil(shortest_sample_ms / once)))
    times = [run(calls) for _ in range(samples)]
    return statistics.median(times), min(times)


def measure(set_name, text, backend, arguments):
    """One result with flashdma-bench's fields."""
    problem = parse_problem(text)
    result = {"set": set_name, "problem": text, "backend": f"pytorch_{backend}"}
    if problem["refused"]:
        result["failure"] = f"not computed by PyTorch's {backend} backend: {' '.join(problem['refused'])}"
        return result
    try:
        median, fastest = time_problem(problem, backend, arguments.samples, arguments.sample_ms, arguments.sustain)
    except RuntimeError as error:
        result["failure"] = str(error).splitlines()[0]
        return result
    flops = 10 * problem["b"] * problem["h"] * problem["sq"] * problem["sk"] * problem["d"] * (0.5 if problem["causal"] else 1)
    result.update(
        kernel=backend, ms=round(median, 5), fastest_ms=round(fastest, 5), samples=arguments.samples, tflops=round(flops / median / 1e9, 1)
    )
    return result


def named_program(text):
    """NAME=PATH, or a path alone."""
    name, equals, path = text.partition("=")
    if not equals:
        name, path = "flashdma_bwd", text
    if not name or not path or name.startswith("pytorch_"):
        raise argparse.ArgumentTypeError(f"`{text}` must be NAME=PATH or a path, and NAME none of PyTorch's")
    return name, path


def run_flashdma_bench(program, arguments):
    """flashdma-bench's report on the same problems."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bench.json")
        command = [program, "--json", path, "--samples", str(arguments.samples), "--sample-ms", str(arguments.sample_ms),
                   "--sustain", str(arguments.sustain)]
        for set_name in arguments.set:
            command += ["--set", set_name]
        for text in arguments.problem:
            command += ["--problem", text]
        subprocess.run(command + ["--commit", arguments.commit], check=False, stdout=subprocess.DEVNULL)
        if not os.path.exists(path):
            sys.exit(f"pytorch_yardstick: {program} wrote no results")
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def print_table(results):
    """Problems as rows, backends as columns."""
    backends = list(dict.fromkeys(result["backend"] for result in results))
    problems = list(dict.fromkeys(result["problem"] for result in results))
    figures = {(result["problem"], result["backend"]): result for result in results}
    width = max(map(len, problems))
    print(" " * width, *(f"{backend:>26}" for backend in backends))
    for problem in problems:
        cells = []
        for backend in backends:
            result = figures.get((problem, backend), {})
            cells.append(f"{result['ms']:10.4f} ms {result['tflops']:7.1f} TF/s" if "ms" in result else "-")
        print(f"{problem:<{width}}", *(f"{cell:>26}" for cell in cells))


def main():
    """Parses the command line, measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", action="append", choices=sorted(SETS), help="a named set of problems (default: dense)")
    parser.add_argument("--problem", action="append", default=[], help="one problem, as text")
    parser.add_argument("--backend", action="append", choices=sorted(BACKENDS), help="default: flash and cudnn")
    parser.add_argument("--with", dest="programs", action="append", default=[], type=named_program, metavar="[NAME=]PATH",
                        help="a flashdma-bench to run in the same minutes, and what its results are called (flashdma_bwd); repeatable")
    parser.add_argument("--samples", type=count, default=20)
    parser.add_argument("--sample-ms", type=duration, default=1.0, help="a timing has as many calls as take so many milliseconds, 64 at most")
    parser.add_argument("--sustain", type=duration, default=0.2, help="seconds to run before timing")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    arguments.set = arguments.set or ([] if arguments.problem else ["dense"])
    names = [name for name, _ in arguments.programs]
    if len(set(names)) != len(names):
        parser.error("--with: each build needs a name of its own, NAME=PATH")
    if not torch.cuda.is_available():
        sys.exit("pytorch_yardstick: no GPU here")

    problems = [(name, text) for name in arguments.set for text in SETS[name]()]
    problems += [("", text) for text in arguments.problem]
    report = {"benchmark": "backward", "gpu": torch.cuda.get_device_name(0), "commit": arguments.commit}
    results = []
    for number, (name, program) in enumerate(arguments.programs):
        ours = run_flashdma_bench(program, arguments)
        about = {key: ours[key] for key in ("driver", "toolkit", "library", "table_hash")}
        # The file's own fields are the first build's; each of several has its own.
        if number == 0:
            report.update(about)
        if len(arguments.programs) > 1:
            report.setdefault("programs", {})[name] = about
        results += [{**result, "backend": name} for result in ours["results"]]
    report.update(pytorch=torch.__version__, cudnn=str(torch.backends.cudnn.version()))
    for backend in arguments.backend or ["flash", "cudnn"]:
        results += [measure(name, text, backend, arguments) for name, text in problems]
    print_table(results)
    for result in results:
        if "failure" in result:
            print(f"{result['backend']}: {result['problem']}: {result['failure']}", file=sys.stderr)
    if arguments.json:
        write_json(arguments.json, {**report, "results": results})


if __name__ == "__main__":
    main()
