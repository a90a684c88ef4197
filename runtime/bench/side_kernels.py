#!/usr/bin/env python3
"""How near the kernels around the main one come to the speed of a copy, timed by Nsight Compute.

    side_kernels.py --bench build/release/runtime/bench/flashdma-bench --commit COMMIT --json side_kernels.json
    side_kernels.py --bench PATH --problem "b=2 h=16 d=128 s=8192"

A kernel's bytes are those of its sources and its results, each once, from the problem's shape; what else it moves, terms of LSE and D
and the work table, is its own affair. Of a plan's first pass they are the mask's alone. What has less than 32 MB is left out. The copy is
of 1 GiB within device memory, read and written, in the same minutes; both run at the clock that the GPU chooses. Each timing is of a
kernel that finds nothing of its sources in the L2 cache, which ncu empties before. `ncu` is looked for on PATH.
"""
import argparse
import re
import statistics

from measuring import bench_report, write_json
from ncu_metrics import kernel_metrics

METRICS = {"ns": "gpu__time_duration.sum", "dram_bytes": "dram__bytes.sum", "l2_sectors": "lts__t_sectors_srcunit_tex.sum"}
SECTOR = 32  # bytes
LAUNCHES = 12  # of all of a problem's kernels together, of which the median of each counts
LEAST_BYTES = 32e6

AROUND_QUERIES = "preprocess_kernel|convert_gradients_kernel"
BIAS_GRADIENT = "(round|reduce)_bias_gradient_kernel"
KEY_SUMS = "reduce_d_key_value_kernel"
MASK_READERS = "key_rows_kernel|pack_mask_kernel"
# What is timed of which problems. Of a problem with a mask D's kernel waits for the plan, and its time says nothing of its own.
PROBLEMS = {
    AROUND_QUERIES: ["b=1 h=64 d=32 s=16384", "b=32 h=64 d=32 s=8192", "b=64 h=1024 d=32 s=1024", "b=1 h=32 d=64 s=16384",
                     "b=2 h=21 d=96 s=8192", "b=2 h=16 d=128 s=8192", "b=2 h=11 d=192 s=8192", "b=2 h=8 d=256 s=8192"],
    # A key bias's, of one, 8 and 64 heads to an element, and a tile bias's in float32.
    BIAS_GRADIENT: ["b=64 h=1024 d=32 s=1024 bias=key", "b=64 h=1024 hk=128 d=32 s=1024 bias=key", "b=64 h=1024 hk=16 d=32 s=1024 bias=key",
                    "b=1 h=8 hk=2 d=64 s=4096 bias=tile deterministic"],
    # Of heads that share a KV head, where it has several items: one a head with a tile bias.
    KEY_SUMS: ["b=2 h=32 hk=8 d=128 s=4096 bias=tile", "b=1 h=32 hk=8 d=64 s=8192 bias=tile", "b=1 h=128 hk=1 d=128 s=2048",
               "b=1 h=64 hk=1 d=256 s=2048"],
    MASK_READERS: ["b=1 h=4 d=128 s=8192 mask=random:0.5", "b=1 h=1 d=64 s=32768 mask=random:0.5", "b=2 h=4 d=128 s=8192 mask=window:512"],
}


def shape(problem):
    """The problem's b, h, hk, d and s."""
    numbers = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)\b", problem)}
    return numbers["b"], numbers["h"], numbers.get("hk", numbers["h"]), numbers["d"], numbers["s"]


def bytes_of(kernel, problem, counted):
    """Of sources and results."""
    b, h, hk, d, s = shape(problem)
    queries = b * s * h * d
    if kernel == "preprocess_kernel":  # O and dO, the float32 zeros of dQ
        return queries * (2 + 2 + 4)
    if kernel == "convert_gradients_kernel":  # float32 to 16 bits
        return queries * (4 + 2)
    if kernel == KEY_SUMS:
        # How many items a KV head has is the library's choice: what the L2 cache was asked for.
        return int(counted["l2_sectors"]) * SECTOR
    if kernel in MASK_READERS.split("|"):  # a byte a pair
        return b * hk * s * s
    if "bias=tile" in problem:
        return b * s * s * (h * 4 + hk * 2)
    return b * s * (h * 4 + hk * 2)


def measure(bench, problem, kernels, copy):
    """What each of these kernels of the problem takes."""
    of_kernel = {}
    command = [bench, "--problem", problem, "--samples", "3"]
    for name, counted in kernel_metrics(command, METRICS, kernels, skip=2, count=LAUNCHES):
        of_kernel.setdefault(re.search(kernels, name).group(), []).append(counted)
    results = []
    for kernel, launches in sorted(of_kernel.items()):
        counted = {metric: statistics.median(launch[metric] for launch in launches) for metric in METRICS}
        moved = bytes_of(kernel, problem, counted)
        if moved < LEAST_BYTES:
            continue
        rate = moved / counted["ns"]  # in GB/s
        results.append({"problem": problem, "kernel": kernel, "launches": len(launches), "bytes": moved, "dram_bytes": int(counted["dram_bytes"]),
                        "us": round(counted["ns"] / 1000, 1), "of_copy": round(rate / copy, 3)})
        print(f"{problem:<50} {kernel:<28} {moved / 1e6:7.0f} MB ({counted['dram_bytes'] / 1e6:.0f} of DRAM) {counted['ns'] / 1000:8.1f} us "
              f"{100 * rate / copy:6.1f} %", flush=True)
    return results


def main():
    """Parses the command line, measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="flashdma-bench")
    parser.add_argument("--problem", action="append", help="all these kernels of one problem, as text (default: PROBLEMS)")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    of_copy = bench_report(arguments.bench, "--problem", "b=1 h=2 d=64 s=1024", "--samples", "3", "--ceilings")
    copy = of_copy["ceilings"]["copy_gb_per_s"]
    print(f"a copy: {copy:.0f} GB/s")
    measured = {"|".join(PROBLEMS): arguments.problem} if arguments.problem else PROBLEMS
    results = [result for kernels, problems in measured.items() for problem in problems for result in measure(arguments.bench, problem, kernels, copy)]
    if arguments.json:
        write_json(arguments.json, {"benchmark": "side kernels", "gpu": of_copy["gpu"], "commit": arguments.commit, "copy_gb_per_s": copy,
                                    "metrics": METRICS, "results": results})


if __name__ == "__main__":
    main()
