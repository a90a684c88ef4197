#!/usr/bin/env python3
"""How busy the parts of a GPU are in the main kernel of some problems, as Nsight Compute counts it.

    utilisation.py --bench build/release/runtime/bench/flashdma-bench --commit COMMIT --json utilisation.json
    utilisation.py --bench PATH --problem "b=2 h=16 d=128 s=8192 causal"

Figures are in percent of what a part could do in the cycles of the kernel, at the clock that the GPU runs at, beside its microseconds. `ncu` is looked for on PATH.
"""
import argparse

from measuring import bench_report, write_json
from ncu_metrics import kernel_metrics

# One for each head dim, 16K tokens of about 2048 columns.
PROBLEMS = [f"b=2 h={heads} d={head_dim} s=8192" for head_dim, heads in ((32, 64), (64, 32), (96, 21), (128, 16), (192, 11), (256, 8))]

METRICS = {
    "tensor_pipe": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "shared_memory": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "l2_hits": "lts__t_sector_hit_rate.pct",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue_slots": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
}
TIME = {"ns": "gpu__time_duration.sum"}


def measure(bench, problem):
    """The metrics of one main kernel, which others have run before."""
    (kernel, figures), = kernel_metrics([bench, "--problem", problem, "--samples", "3"], {**METRICS, **TIME}, "^bwd_", skip=2, count=1)
    microseconds = figures.pop("ns") / 1000
    return {"problem": problem, "kernel": kernel.split("(")[0], "us": round(microseconds, 1), **{name: round(figure, 1) for name, figure in figures.items()}}


def main():
    """Parses the command line, measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="flashdma-bench")
    parser.add_argument("--problem", action="append", help="one problem, as text (default: one for each head dim)")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    results = []
    for problem in arguments.problem or PROBLEMS:
        results.append(measure(arguments.bench, problem))
        print(f"{problem:<40} {results[-1]['us']:8.1f} us", *(f"{name} {results[-1][name]:5.1f} %" for name in METRICS))
    if arguments.json:
        gpu = bench_report(arguments.bench, "--problem", "b=1 h=2 d=64 s=1024", "--samples", "3")["gpu"]
        write_json(arguments.json, {"benchmark": "utilisation", "gpu": gpu, "commit": arguments.commit, "metrics": {**METRICS, **TIME}, "results": results})


if __name__ == "__main__":
    main()
