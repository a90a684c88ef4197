#!/usr/bin/env python3
"""Writes the README's tables of measurements from runtime/bench/results, what the tuner's store says of tile biases, and the forecast of
a build from configs/architectures.

    readme_tables.py            rewrites what stands between `<!-- NAME -->` and `<!-- end of NAME -->` in README.md
    readme_tables.py --check    says which of them are not what the results are, and exits with 1 if any is
"""
import json
import pathlib
import re
import sys

from measuring import write_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "runtime/bench/results"
STORE = ROOT / "runtime/tune/results/h200.jsonl"


def results(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def by_backend(name):
    problems = {}
    for result in results(name)["results"]:
        problems.setdefault(result["problem"], {})[result["backend"]] = result
    return problems


def fields(problem):
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", problem)}


def shape_cells(problem):
    f = fields(problem)
    return f"{f['b']} {f['h']} {f['d']} {f['s']} | {'causal' if problem.endswith('causal') else ''}"


def time_and_rate(result):
    return f"{result['ms']:.3f} · {result['tflops']:.0f}"


def table(heads, rows):
    return "\n".join([f"| {heads} |", "|" + "---|" * (heads.count(" | ") + 1), *(f"| {row} |" for row in rows)])


def dense():
    rows = []
    alone = by_backend("h200_dense_alone")
    for problem, backends in by_backend("h200").items():
        own, flash, cudnn = (backends[name] for name in ("flashdma_bwd", "pytorch_flash", "pytorch_cudnn"))
        own_alone, cudnn_alone = (alone[problem][name]["ms"] for name in ("flashdma_bwd", "pytorch_cudnn"))
        rows.append(
            f"{shape_cells(problem)} | {time_and_rate(own)} | {time_and_rate(flash)} | {time_and_rate(cudnn)} | "
            f"{flash['ms'] / own['ms']:.2f} · {cudnn['ms'] / own['ms']:.2f} | {own_alone:.3f} · {cudnn_alone:.3f} · {cudnn_alone / own_alone:.2f}"
        )
    return table("b h d s |  | flashdma_bwd | PyTorch flash (FA2) | PyTorch cuDNN 9.19 | speed over FA2 · over cuDNN | "
                 "one call at a time: flashdma_bwd · cuDNN · speed over it", rows)


def ampere():
    rows = []
    for problem, backends in by_backend("h200_ampere").items():
        # Timed alone, or by its name beside the Hopper family.
        own, flash = backends.get("flashdma_bwd_ampere", backends.get("flashdma_bwd")), backends["pytorch_flash"]
        rows.append(f"{shape_cells(problem)} | {time_and_rate(own)} | {time_and_rate(flash)} | {flash['ms'] / own['ms']:.2f}")
    return table("b h d s |  | Ampere family | PyTorch flash (FA2) | speed over FA2", rows)


def ampere_others():
    others = {result["problem"]: result["ms"] for result in results("h200_ampere_others")["results"]}
    hopper = {result["problem"]: result["ms"] for result in results("h200_head_dim_32")["results"]}
    masked = next(problem for problem in others if "mask" in problem)
    full, causal = (problem for problem in others if problem in hopper)
    f = fields(full)
    return (
        f"`{masked}` takes {others[masked]:.2f} ms there, plan included; d {f['d']} (b={f['b']} h={f['h']} s={f['s']})\n"
        f"{others[full]:.2f} ms and causal {others[causal]:.2f}, where the Hopper family takes {hopper[full]:.2f} and {hopper[causal]:.2f}."
    )


def dynamic():
    rows = []
    # Measured before, of its kernels alone.
    flash_dmattn = {result["problem"]: result["ms"] for result in results("h200_flash_dmattn_dynamic")["results"]}
    for result in results("h200_dynamic")["results"]:
        f = fields(result["problem"])
        w = int(result["problem"].rsplit(":", 1)[1])
        rows.append(
            f"{f['b']} {f['h']} {f['hk']} {f['d']} {f['s']} {w} | {100 * result['active_fraction']:.1f} % | "
            f"{result['ms']:.3f} | {result['plan']['planned_ms']:.3f} | {flash_dmattn[result['problem']]:.3f}"
        )
    return table("b h h_kv d s w | active pairs | plan and backward | planned | flash-dmattn", rows)


def sparse():
    """Problems with a mask or a window beside the same without one, which comes before them."""
    ms = {result["problem"]: result["ms"] for result in results("h200_sparse")["results"]}
    main_kernel = {result["problem"]: result["us"] for result in results("utilisation/h200_active_tiles")["results"]}
    rows = []
    for result in results("h200_sparse")["results"]:
        problem = result["problem"]
        if " window=" in problem:
            shape, mask = problem.rsplit(" window=", 1)
            mask = f"none, a window of {mask}"
        elif " mask=" in problem:
            shape, mask = problem.rsplit(" mask=", 1)
        else:
            continue
        dense = ms[shape.removesuffix(" causal")]
        of_tiles = "-"
        if mask.startswith("random"):  # for the pairs that causality leaves
            dense, tiles = ms[shape], "all"
        else:
            plan = result.get("plan", {})
            tiles = f"{100 * plan['predicted_tiles'] / plan['all_tiles']:.1f} %" if "all_tiles" in plan else "-"
            if problem in main_kernel:
                share = plan["predicted_tiles"] / plan["all_tiles"]
                whole, alone = result["ms"] / dense / share, main_kernel[problem] / main_kernel[shape.removesuffix(" causal")] / share
                of_tiles = f"{whole:.2f} · {alone:.2f}"
        rows.append(f"{shape} | {mask} | {100 * result['active_fraction']:.1f} % | {tiles} | {result['ms']:.3f} | {dense:.3f} | {of_tiles}")
    return table("problem | mask | active pairs | active tiles | planned | without the mask | an active tile's time over a dense one's: the whole backward · the main kernel", rows)


def utilisation():
    rows = [
        f"{fields(result['problem'])['d']} | {result['tensor_pipe']:.0f} % | {result['shared_memory']:.0f} % | {result['l2']:.0f} % | "
        f"{result['dram']:.0f} % | {result['issue_slots']:.0f} %"
        for result in results("utilisation/h200")["results"]
    ]
    return table("d | tensor pipe | shared memory | L2 | DRAM | issue slots", rows)


def side_kernels():
    names = {"preprocess_kernel": "D, zeros for dQ", "convert_gradients_kernel": "dQ to 16 bits", "round_bias_gradient_kernel": "dBias",
             "reduce_bias_gradient_kernel": "dBias, sums", "reduce_d_key_value_kernel": "dK and dV, sums", "key_rows_kernel": "a plan's first pass",
             "pack_mask_kernel": "a natural plan's pass"}
    measured = results("side_kernels/h200")
    rows = [f"{names[result['kernel']]} | {result['problem']} | {result['bytes'] / 1e6:.0f} | {result['us']:.1f} | {100 * result['of_copy']:.0f} %"
            for name in names for result in measured["results"] if result["kernel"] == name]
    return table(f"kernel | problem | MB | us | of the copy's {measured['copy_gb_per_s']:.0f} GB/s", rows)


def plans():
    measured = results("h200_plans")
    copy = measured["ceilings"]["copy_gb_per_s"]
    rows = []
    for result in measured["results"]:
        problem, mask = result["problem"].rsplit(" mask=", 1)
        f = fields(problem)
        mask_bytes = f["b"] * f.get("hk", f["h"]) * f["s"] ** 2
        plan_ms = result["plan"]["ms"]
        rows.append(f"{problem} | {mask} | {mask_bytes / 1e6:.0f} | {plan_ms:.4f} | {plan_ms / (mask_bytes / copy / 1e6):.2f}")
    return table(f"problem | mask | MB | plan, ms | over one read of the mask at the copy's {copy:.0f} GB/s", rows)


def features():
    ms = {result["problem"]: result["ms"] for result in results("h200_features")["results"]}

    def cost(base, feature):
        return ms[f"{base} {feature}"] / ms[base]

    def both(base, feature):
        # Words come in the bench's own order: fp16 before causal, all others behind it.
        causal = f"{base} fp16 causal" if feature == "fp16" else f"{base} causal {feature}"
        if f"{base} {feature}" not in ms or causal not in ms:
            return "not measured"
        return f"{cost(base, feature):.2f} · {ms[causal] / ms[f'{base} causal']:.2f}"

    what = {
        "fp16": "fp16",
        "bias=key": "key bias with its gradient",
        "bias=tile": "tile bias with its gradient",
        "softcap=30": "softcap",
        "softcap=30 bias=key": "softcap and key bias",
        "softcap=30 bias=tile": "softcap and tile bias",
        "deterministic": "deterministic",
    }
    sizes = {f"d {d}": f"b=2 h={heads} d={d} s=8192" for d, heads in ((64, 32), (96, 21), (128, 16), (192, 11), (256, 8))}
    sizes = {name: base for name, base in sizes.items() if base in ms}
    rows = [" | ".join([text, *(both(size, word) for size in sizes.values())]) for word, text in what.items()]
    packed = "b=8 h=16 d=128 s=2048"

    def shared(size):
        return " · ".join(
            f"{ms[f'b=1 h=16 hk=4 {size} s=4096{causal} bias=tile'] / ms[f'b=1 h=16 {size} s=4096{causal} bias=tile']:.2f}" for causal in ("", " causal")
        )

    of_turns = results("h200_deterministic")
    turns = {result["problem"]: result["ms"] for result in of_turns["results"]}

    def in_turns(base):
        return " · ".join(f"{turns[f'{of} deterministic'] / turns[of]:.2f}" for of in (base, f"{base} causal"))

    heads = ms["b=4 h=32 hk=8 d=128 s=2048 causal"] / ms["b=4 h=32 d=128 s=2048 causal"]
    return (
        table(" | " + " | ".join(sizes), rows)
        + f"\n\nWith d 32 deterministic mode costs {in_turns('b=2 h=64 d=32 s=8192')}, in the run of commit {of_turns['commit']}; in that run, with d 96, "
        f"{in_turns('b=2 h=21 d=96 s=8192')}. A tile bias and its "
        f"gradient that 4 heads\nshare take {shared('d=64')} (d 64) and {shared('d=128')} (d 128) of the time of one for each head (b=1 h=16 s=4096). "
        f"32 heads on 8 KV heads take {heads:.2f} of the time of 32 on 32\n"
        f"(d 128, s=2048, causal), packed sequences of one length {cost(packed, 'packed'):.2f} · "
        f"{cost(packed + ' causal', 'packed'):.2f} of that of a batch."
    )


def small():
    times = [f"s={fields(r['problem'])['s']} {r['ms']:.3f} ms" for r in results("h200_small")["results"]]
    return f"Small and causal (b=1 h=2 h_kv=1 d=64): {', '.join(times)}."


def tile_bias():
    records = [json.loads(line) for line in STORE.read_text().splitlines()]
    times = []
    for record in records:
        problem = record["problem"]
        timed = [c for c in record["candidates"] if "cold" in c]  # the others have a failure
        of_family = {name: [c["cold"]["ms"] for c in timed if f"_{name}_" in c["kernel"]] for name in ("hopper", "ampere")}
        if "bias=tile bias_copies" in problem and of_family["hopper"]:
            times.append((min(of_family["ampere"]) / min(of_family["hopper"]), fields(problem)))
    (commit,) = {record["environment"]["commit"] for record in records}

    def span(name):
        return f"{min(f[name] for _, f in times)} to {max(f[name] for _, f in times)}"

    return (
        f"A tile bias that tensor copies cannot move is read and written pair by pair, by the Ampere family. On the same problems that takes "
        f"{min(times, key=lambda t: t[0])[0]:.1f} to {max(times, key=lambda t: t[0])[0]:.1f}\n"
        f"times the time of the copies (b=1 h=8 causal, d {span('d')}, s={span('sq')}; `runtime/tune/results/h200.jsonl`, of commit {commit})."
    )


def build():
    kernels = {}
    for unit in (ROOT / "generated/kernels").rglob("*.cu"):
        for architecture, head_dim in re.findall(r"^FLASHDMA_BWD_[A-Z]+_KERNEL\(\s*bwd_(sm\d+)_d(\d+)_", unit.read_text(), re.M):
            kernels[architecture, int(head_dim)] = kernels.get((architecture, int(head_dim)), 0) + 1
    seconds, size = 0, 0
    for path in (ROOT / "configs/architectures").glob("*.yaml"):
        for head_dim, cost, kernel_size in re.findall(r"head_dim: *(\d+), seconds: *([\d.]+), bytes: *(\d+)", path.read_text()):
            count = kernels.get((path.stem, int(head_dim)), 0)
            seconds += count * float(cost)
            size += count * int(kernel_size)
    return (
        f"Compiling the {sum(kernels.values())} kernels for {len({architecture for architecture, _ in kernels})} architectures takes "
        f"{seconds / 60:.0f} minutes of one core, and they are {size / 1e6:.0f} MB of the static library: what `flashdma-gen stats`\n"
        "forecasts for a table, from figures of whole builds in `configs/architectures`."
    )


def host():
    text = (RESULTS / "host.txt").read_text()
    commit, machine = re.search(r"^commit (\S+), on (.+)$", text, re.M).groups()
    more = dict(re.findall(r"^(\S.*?) +[\d.]+ +\+([\d.]+)$", text, re.M))
    choices = [float(ns) for row in re.findall(r"^compute capability \d+ +(.+)$", text, re.M) for ns in row.split()]
    return (
        f"Off, it is one relaxed atomic load: {more['nothing monitored']} ns a launch, with counters {float(more['counters']):.0f}, with two hooks "
        f"{float(more['two hooks that do nothing']):.0f} (`flashdma-bench monitoring`), where the choice of a row\n"
        f"takes {min(choices):.0f} to {max(choices):.0f} ns (`flashdma-bench select`): `runtime/bench/results/host.txt`, at {commit} on {machine}."
    )


def commits():
    names = {"h200": "dense problems", "h200_dense_alone": "dense problems one call at a time",
             "h200_ampere": "the Ampere family", "h200_ampere_others": "the Ampere family's other problems",
             "h200_head_dim_32": "d 32", "h200_dynamic": "masks", "h200_features": "features",
             "h200_deterministic": "deterministic mode by head dim", "h200_small": "small problems",
             "h200_sparse": "masks of structure", "utilisation/h200": "how busy the GPU is", "utilisation/h200_active_tiles": "the main kernel's active tiles", "h200_density_d64": "the plots", "h200_density_d128": "the plots",
             "h200_plans": "plans", "side_kernels/h200": "the kernels around the main one"}
    unnamed = {path.stem for path in RESULTS.glob("*.json") if "flash_dmattn" not in path.stem} - names.keys()
    if unnamed:
        sys.exit(f"readme_tables.py: commits() does not say what {', '.join(sorted(unnamed))} measured")
    of_commit = {}
    for file, name in names.items():
        measured = results(file)
        # What is measured beside other programs of this project is that of the Ampere family.
        commit = measured.get("programs", {}).get("flashdma_bwd_ampere", {}).get("commit", measured["commit"])
        of = of_commit.setdefault(commit, [])
        if name not in of:
            of.append(name)
    parts = [f"{commit} ({', '.join(of)})" for commit, of in of_commit.items()]
    return f"The figures are of commit {parts[0]}" + "".join(f", {part}" for part in parts[1:]) + "." + samples(names)


def samples(names):
    """Of how many timings the figures are medians."""
    of_count = {}
    for file, name in names.items():
        for count in {result["samples"] for result in results(file)["results"] if "samples" in result}:
            of = of_count.setdefault(count, [])
            if name not in of:
                of.append(name)
    first, *others = sorted(of_count, key=lambda count: -len(of_count[count]))
    text = f"\nThey are medians of {first} timings" + "".join(f", of {count} in {', '.join(of_count[count])}" for count in others) + "."
    in_rounds = {}
    for file, name in names.items():
        if (rounds := results(file).get("rounds", 1)) > 1:
            in_rounds.setdefault(rounds, []).append(name)
    return text + "".join(f" Those of {' and '.join(of)} are medians of {rounds} such passes." for rounds, of in in_rounds.items())


TABLES = [commits, dense, ampere, ampere_others, dynamic, plans, sparse, utilisation, side_kernels, features, tile_bias, small, build, host]


def main():
    path = ROOT / "README.md"
    text = path.read_text()
    stale = []
    for make in TABLES:
        name = make.__name__
        parts = re.split(f"(<!-- {name} -->\n|\n<!-- end of {name} -->)", text)
        if len(parts) != 5:
            sys.exit(f"README.md: there must be one `<!-- {name} -->` and, behind it, one `<!-- end of {name} -->`, each a line of its own")
        if parts[2] != make():
            stale.append(name)
        parts[2] = make()
        text = "".join(parts)
    if "--check" not in sys.argv[1:]:
        write_file(path, text)
    elif stale:
        sys.exit(f"README.md: not what runtime/bench/results says: {', '.join(stale)}; run runtime/bench/readme_tables.py")


if __name__ == "__main__":
    main()
