#!/usr/bin/env python3
"""Measures what runtime/bench/results publishes, on one GPU and from one commit, and writes the README's tables and plots anew.

    measure_results.py --bench build/release/runtime/bench/flashdma-bench --commit COMMIT
    measure_results.py --bench PATH --ampere build/ampere/bench/runtime/bench/flashdma-bench --commit COMMIT
    measure_results.py --bench PATH --commit COMMIT --part features --part small
    measure_results.py --list

The first form measures the parts of the library's own table, some minutes on an H200; the second also those of the Ampere family,
whose build is `./dev bench-ampere`'s; the third some parts alone. A part replaces its files when it has been measured as a whole; one that
fails leaves them as they are, the others are measured all the same, and the exit status is 1. `dense`, `dense_alone`, `features` and
`dynamic` are measured in rounds, of which the median counts. Parts `dense`, `dense_alone` and `ampere` need PyTorch, `side_kernels`,
`utilisation` and `active_tiles` Nsight Compute (`ncu` on PATH). `./dev results` builds both programs and runs this.
"""
import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

from measuring import count, write_file

BENCH_FOLDER = pathlib.Path(__file__).resolve().parent
RESULTS = BENCH_FOLDER / "results"
OWN_GPU = "h200"  # whose results these are

HEAD_DIM_32 = ["b=2 h=64 d=32 s=8192", "b=2 h=64 d=32 s=8192 causal"]
# d 64 and d 128 are among the features.
DETERMINISTIC = [
    f"b=2 h={heads} d={d} s=8192{causal}{deterministic}"
    for d, heads in ((32, 64), (96, 21), (192, 11), (256, 8))
    for causal in ("", " causal")
    for deterministic in ("", " deterministic")
]
# The head dims that FA2 has, short and long.
AMPERE = [
    f"b={16384 // s} h={2048 // d} d={d} s={s}{causal}" for d in (64, 128, 256) for s in (2048, 16384) for causal in ("", " causal")
]
AMPERE_OTHERS = [*HEAD_DIM_32, "b=1 h=16 hk=4 d=128 s=8192 causal bias=key mask=topw:1024"]
# What a mask of structure leaves of the main kernel, beside all of it.
ACTIVE_TILES = [f"b=2 h=16 d=128 s=4096{mask}" for mask in ("", " causal mask=window:512", " mask=documents:1024", " mask=blocks:0.1", " mask=blocks:0.02")]
DENSITY_FILES = {"_d64": 64, "_d128": 128}  # how the names of one part's files go on


def problems(texts):
    """As arguments of a command."""
    return [word for text in texts for word in ("--problem", text)]


def bench(*words, samples="{samples}"):
    """Of the library's own table."""
    return ["{bench}", "--samples", samples, *words]


def ampere(*words):
    """Of the Ampere family's on the same GPU."""
    return ["{ampere}", "--samples", "{samples}", *words]


def yardstick(*words, samples="{samples}"):
    """Beside PyTorch, in the same minutes."""
    return [sys.executable, str(BENCH_FOLDER / "pytorch_yardstick.py"), "--samples", samples, *words]


# What the power limit decides is timed when the GPU's clocks have settled: the first tenth of a second runs at clocks that it does not
# hold, and some 0.3 s later they fall too far for a while (runtime/kernels/hopper/notes/time.md). Later they do so again, less often:
# samples go over half a second, however short a call is.
SETTLED = ("--sustain", "1", "--sample-ms", "10")
SETTLED_SAMPLES = "{settled_samples}"

# A few calls, one at a time, on a GPU that has hardly been at work, as published times of other kernels seem to be. Clocks have not fallen
# yet, or fall in the middle of calls of 4 ms and more, and the host's way to the first kernel is in the times, 0.1 ms and more with PyTorch.
ALONE = ("--sustain", "0.01", "--sample-ms", "0.001")

# The name of a part: the file that it gives below the folder of results, and its command but for --commit and --json.
PARTS = {
    "dense": ("{gpu}", yardstick(*SETTLED, "--set", "dense", "--backend", "flash", "--backend", "cudnn", "--with", "{bench}",
                                   samples=SETTLED_SAMPLES)),
    "dense_alone": ("{gpu}_dense_alone", yardstick(*ALONE, "--set", "dense", "--backend", "cudnn", "--with", "{bench}")),
    "features": ("{gpu}_features", bench(*SETTLED, "--set", "features", samples=SETTLED_SAMPLES)),
    "deterministic": ("{gpu}_deterministic", bench(*problems(DETERMINISTIC))),
    "head_dim_32": ("{gpu}_head_dim_32", bench(*problems(HEAD_DIM_32))),
    "small": ("{gpu}_small", bench("--set", "small")),
    "dynamic": ("{gpu}_dynamic", bench("--set", "dynamic", "--plan")),
    "sparse": ("{gpu}_sparse", bench("--set", "sparse", "--reuse-plan")),
    "density": ("{gpu}_density", bench("--set", "density", "--plan", "--ceilings")),
    "plans": ("{gpu}_plans", bench("--set", "plans", "--plan", "--ceilings")),
    "side_kernels": ("side_kernels/{gpu}", [sys.executable, str(BENCH_FOLDER / "side_kernels.py"), "--bench", "{bench}"]),
    "utilisation": ("utilisation/{gpu}", [sys.executable, str(BENCH_FOLDER / "utilisation.py"), "--bench", "{bench}"]),
    "active_tiles": ("utilisation/{gpu}_active_tiles", [sys.executable, str(BENCH_FOLDER / "utilisation.py"), "--bench", "{bench}",
                                                       *problems(ACTIVE_TILES)]),
    "ampere": ("{gpu}_ampere", yardstick(*problems(AMPERE), "--backend", "flash", "--backend", "cudnn", "--with", "flashdma_bwd={bench}",
                                         "--with", "flashdma_bwd_ampere={ampere}")),
    "ampere_others": ("{gpu}_ampere_others", ampere(*problems(AMPERE_OTHERS))),
}

SETTLED_PARTS = [part for part, (_, command) in PARTS.items() if SETTLED_SAMPLES in command]

# Whose times are compared with each other, or with another program's: in one pass they also depend on what ran before them, by 1 to 2 %.
PARTS_IN_ROUNDS = ("dense", "dense_alone", "features", "dynamic")


def needs_ampere(part):
    """Whether it measures a build of the Ampere family."""
    return any("{ampere}" in word for word in PARTS[part][1])


def filled(text, arguments):
    """A word of PARTS with what the command line says."""
    return text.format(bench=arguments.bench, ampere=arguments.ampere, samples=arguments.samples,
                       settled_samples=4 * arguments.samples, gpu=arguments.gpu)


def command_of(part, arguments):
    """But for where it writes its results."""
    return [*(filled(word, arguments) for word in PARTS[part][1]), "--commit", arguments.commit]


def as_text(measured):
    """As flashdma-bench writes it, a line a result."""
    lines = [f'"{name}": {json.dumps(value)}' for name, value in measured.items() if name != "results"]
    results = ",\n    ".join(json.dumps(result) for result in measured["results"])
    return "{\n  " + ",\n  ".join([*lines, f'"results": [\n    {results}\n  ]']) + "\n}\n"


def write_densities(stem, measured, arguments):
    """A file for each head dim, since a plot has problems that differ in lengths and mask alone; and the plots. Whether these were drawn."""
    for ending, head_dim in DENSITY_FILES.items():
        of_head_dim = [result for result in measured["results"] if f" d={head_dim} " in result["problem"]]
        write_file(arguments.output / f"{stem}{ending}.json", as_text({**measured, "results": of_head_dim}))
    drawn = True
    for ending in DENSITY_FILES:
        path = arguments.output / f"{stem}{ending}"
        # Of another project's kernels, where its figures are there.
        others = arguments.output / f"{arguments.gpu}_flash_dmattn{ending}.json"
        status = subprocess.run([arguments.bench, "report", f"{path}.json", *([str(others)] if others.exists() else []),
                                 "--plot", "density", "--output", f"{path}.svg"], check=False).returncode
        if status != 0:
            print(f"measure_results.py: {path}.json is written, and its plot is not: `report` ended with {status}", file=sys.stderr)
            drawn = False
    return drawn


def medians(rounds):
    """Of several passes through the same problems: of each problem the result with the median time. None if they have other problems."""
    names = [[(result["problem"], result.get("backend")) for result in measured["results"]] for measured in rounds]
    if any(other != names[0] for other in names):
        return None
    of_problems = zip(*(measured["results"] for measured in rounds))
    results = [sorted(of_problem, key=lambda result: result["ms"])[len(rounds) // 2] for of_problem in of_problems]
    return {**rounds[0], "rounds": len(rounds), "results": results}


def measured_once(part, arguments):
    """What its command measures, or None."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "results.json"
        try:
            status = subprocess.run([*command_of(part, arguments), "--json", str(path)], check=False).returncode
        except OSError as error:
            print(f"measure_results.py: {part}: {error}; its results stay as they are", file=sys.stderr)
            return None
        if status != 0 or not path.exists():
            print(f"measure_results.py: {part}: the command above it ended with {status}; its results stay as they are", file=sys.stderr)
            return None
        measured = json.loads(path.read_text(encoding="utf-8"))
    # A problem that only PyTorch cannot do is in the yardstick's file without a time, and its exit status says nothing of it.
    failures = [result for result in measured["results"] if "failure" in result]
    for result in failures:
        print(f"measure_results.py: {part}: {result['problem']}, {result.get('backend', 'flashdma_bwd')}: {result['failure']}; "
              "its results stay as they are", file=sys.stderr)
    return None if failures else measured


def measure(part, arguments):
    """Whether it was measured and written."""
    stem = filled(PARTS[part][0], arguments)
    rounds = []
    for number in range(arguments.rounds if part in PARTS_IN_ROUNDS else 1):
        print(f"== {part}" + (f", round {number + 1} of {arguments.rounds}" if part in PARTS_IN_ROUNDS else ""), flush=True)
        measured = measured_once(part, arguments)
        if measured is None:
            return False
        if arguments.gpu not in measured["gpu"].lower().replace(" ", ""):
            sys.exit(f"measure_results.py: this GPU is {measured['gpu']}, and the results of {arguments.output} would be called {arguments.gpu}'s: "
                     "nothing of it was written; give --gpu NAME, part of its name in small letters, and a folder for its results (--output)")
        rounds.append(measured)
    measured = medians(rounds) if part in PARTS_IN_ROUNDS else rounds[0]
    if measured is None:
        print(f"measure_results.py: {part}: its rounds have other problems; its results stay as they are", file=sys.stderr)
        return False
    if part == "density":
        return write_densities(stem, measured, arguments)
    write_file(arguments.output / f"{stem}.json", as_text(measured))
    return True


def parse_arguments():
    """Ends the program where they are not right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print each part's file and command and measure nothing")
    parser.add_argument("--bench", help="flashdma-bench with the library's own table")
    parser.add_argument("--ampere", help="flashdma-bench with the table of `./dev bench-ampere`")
    parser.add_argument("--commit", help="that they were built from")
    parser.add_argument("--part", dest="parts", action="append", choices=list(PARTS), help="default: all that the programs allow")
    parser.add_argument("--samples", type=count, default=15, help="timings of a problem, of which the median counts, four times as many in "
                        f"{' and '.join(SETTLED_PARTS)} (default: 15)")
    parser.add_argument("--rounds", type=count, default=3,
                        help=f"passes through the problems of {' and '.join(PARTS_IN_ROUNDS)}, of which the median counts (default: 3)")
    parser.add_argument("--gpu", default=OWN_GPU, help=f"what the files' names begin with, part of the GPU's name in small letters (default: {OWN_GPU})")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="the folder (default: runtime/bench/results)")
    arguments = parser.parse_args()
    if arguments.list:
        arguments.bench, arguments.ampere = arguments.bench or "BENCH", arguments.ampere or "AMPERE"
        arguments.commit = arguments.commit or "COMMIT"
    if arguments.gpu != OWN_GPU and arguments.output.resolve() == RESULTS and not arguments.list:
        parser.error(f"--gpu {arguments.gpu} needs --output FOLDER: the README's tables are of what runtime/bench/results has of the {OWN_GPU}")
    if not arguments.bench or not arguments.commit:
        parser.error("--bench and --commit are needed: results are of a program and of the commit that it was built from")
    if not arguments.parts:
        arguments.parts = [part for part in PARTS if arguments.ampere or not needs_ampere(part)]
    lacking = [part for part in arguments.parts if needs_ampere(part) and not arguments.ampere]
    if lacking:
        parser.error(f"--ampere is needed to measure {', '.join(lacking)}")
    return arguments


def main():
    """Lists the parts, or measures them and brings the README up to date."""
    arguments = parse_arguments()
    if arguments.list:
        for part in arguments.parts:
            files = [f"{filled(PARTS[part][0], arguments)}{head_dim}.json" for head_dim in (DENSITY_FILES if part == "density" else ("",))]
            print(f"{', '.join(files)}: {shlex.join(command_of(part, arguments))}")
        return
    failed = [part for part in arguments.parts if not measure(part, arguments)]
    if arguments.output.resolve() == RESULTS:
        subprocess.run([sys.executable, str(BENCH_FOLDER / "readme_tables.py")], check=True)
    if failed:
        sys.exit(f"measure_results.py: not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
