#!/usr/bin/env python3
"""measure_results.py without a GPU and without PyTorch: which files it writes, and that a part that fails leaves its own as they were.

    measure_results_test.py <measure_results.py> [<flashdma-bench>]

With flashdma-bench, it also has all problems of its lists read by that program.
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

# Fails where it is asked for a set that FAIL names. `report` draws nothing, but of files that are there. Its times are 3, 1, 2 ms by
# turns, so that the median of three is the last.
BENCH = """#!{python}
import json, os, pathlib, sys
arguments = sys.argv[1:]
after = lambda word: [arguments[i + 1] for i, argument in enumerate(arguments) if argument == word]
if arguments[0] == "report":
    if os.environ["FAIL"] == "report":
        sys.exit(4)
    files = arguments[1:arguments.index("--plot")]
    pathlib.Path(after("--output")[0]).write_text(" ".join(str(len(json.loads(pathlib.Path(file).read_text())["results"])) for file in files))
    sys.exit(0)
if after("--set") == [os.environ["FAIL"]]:
    sys.exit(3)
problems = after("--problem") or ["b=1 h=2 d=128 s=256", "b=1 h=2 d=64 s=256", "b=1 h=2 d=64 s=512"]
count = pathlib.Path(sys.argv[0] + ".count")
calls = int(count.read_text()) if count.exists() else 0
count.write_text(str(calls + 1))
if os.environ["FAIL"] == "other problems":
    problems = [f"b={{calls + 1}} h=2 d=64 s=256"]
result = {{"failure": "refused"}} if os.environ["FAIL"] == "a problem" else {{"ms": [3.0, 1.0, 2.0][calls % 3]}}
pathlib.Path(after("--json")[0]).write_text(json.dumps(
    {{"benchmark": "backward", "gpu": "NVIDIA H200", "commit": after("--commit")[0], "results": [{{"problem": problem, **result}} for problem in problems]}}))
"""


def main():
    script = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = folder / "bench"
        program.write_text(BENCH.format(python=sys.executable))
        program.chmod(0o755)
        output = folder / "results"

        def run(*arguments, fail=""):
            command = [sys.executable, script, "--bench", str(program), "--commit", "abc", "--output", str(output), *arguments]
            return subprocess.run(command, env={**os.environ, "FAIL": fail}, capture_output=True, text=True, check=False)

        def files():
            return sorted(path.name for path in output.iterdir())

        def problems(file):
            return [result["problem"] for result in json.loads((output / file).read_text())["results"]]

        parts = ["--part", "small", "--part", "head_dim_32", "--part", "density"]
        done = run(*parts)
        assert done.returncode == 0, done.stderr
        densities = [f"h200_density_d{head_dim}.{kind}" for head_dim in (128, 64) for kind in ("json", "svg")]
        assert files() == [*densities, "h200_head_dim_32.json", "h200_small.json"], files()
        assert problems("h200_density_d64.json") == ["b=1 h=2 d=64 s=256", "b=1 h=2 d=64 s=512"]
        assert problems("h200_density_d128.json") == ["b=1 h=2 d=128 s=256"]
        assert (output / "h200_density_d64.svg").read_text() == "2"
        assert json.loads((output / "h200_small.json").read_text())["commit"] == "abc"
        assert all(" d=32 " in problem for problem in problems("h200_head_dim_32.json"))

        # What is compared with each other is measured in rounds, of which the median counts.
        for rounds, ms in ((3, 2.0), (1, 3.0)):
            (folder / "bench.count").write_text("0")
            done = run("--part", "features", "--rounds", str(rounds))
            assert done.returncode == 0, done.stderr
            features = json.loads((output / "h200_features.json").read_text())
            assert features["rounds"] == rounds and [result["ms"] for result in features["results"]] == [ms] * 3, features
        assert "rounds" not in json.loads((output / "h200_small.json").read_text())
        done = run("--part", "features", "--rounds", "0")
        assert done.returncode == 2 and "argument --rounds: `0` must be a number, 1 or more" in done.stderr, done.stderr
        done = run("--part", "features", fail="other problems")
        assert done.returncode == 1 and "features: its rounds have other problems" in done.stderr and "not measured: features" in done.stderr, done.stderr
        assert json.loads((output / "h200_features.json").read_text()) == features

        # Another project's figures stand beside in a plot.
        (output / "h200_flash_dmattn_d64.json").write_text('{"results": [1, 2, 3]}')
        assert run("--part", "density").returncode == 0
        assert (output / "h200_density_d64.svg").read_text() == "2 3"

        done = run("--part", "density", fail="report")
        assert done.returncode == 1 and "h200_density_d64.json is written, and its plot is not" in done.stderr, done.stderr

        # What fails is said and replaces nothing; what comes after it is measured.
        (output / "h200_small.json").write_text("before")
        (output / "h200_features.json").unlink(missing_ok=True)
        done = run("--part", "small", "--part", "features", fail="small")
        assert done.returncode == 1 and "not measured: small" in done.stderr and "small: the command above it ended with 3" in done.stderr, done.stderr
        assert (output / "h200_small.json").read_text() == "before" and (output / "h200_features.json").exists()
        done = run("--part", "ampere_others", "--ampere", str(folder / "no_such_program"))
        assert done.returncode == 1 and "no_such_program" in done.stderr and not (output / "h200_ampere_others.json").exists(), done.stderr

        # Another GPU's figures do not take this one's place.
        before = files()
        done = run("--part", "features", "--gpu", "h100")
        assert done.returncode == 1 and "this GPU is NVIDIA H200" in done.stderr and files() == before, done.stderr

        # They need a folder of their own.
        own = [sys.executable, script, "--bench", str(program), "--commit", "abc", "--part", "small", "--gpu", "h100"]
        done = subprocess.run(own, env={**os.environ, "FAIL": ""}, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "--gpu h100 needs --output FOLDER" in done.stderr, done.stderr

        # A problem without a time is no result.
        (output / "h200_head_dim_32.json").write_text("before")
        done = run("--part", "head_dim_32", fail="a problem")
        assert done.returncode == 1 and "b=2 h=64 d=32 s=8192, flashdma_bwd: refused; its results stay" in done.stderr, done.stderr
        assert (output / "h200_head_dim_32.json").read_text() == "before"

        for wrong, why in ((["--part", "ampere"], "--ampere is needed to measure ampere"), (["--part", "nothing"], "invalid choice: 'nothing'")):
            done = run(*wrong)
            assert done.returncode == 2 and why in done.stderr, done.stderr

        listed = subprocess.run([sys.executable, script, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
        assert len(listed) == 15 and listed[0].startswith("h200.json: "), listed
        assert any(line.startswith("h200_density_d64.json, h200_density_d128.json: ") for line in listed), listed
        if len(sys.argv) > 2:
            words = [word for line in listed for word in shlex.split(line)]
            texts = [words[i + 1] for i, word in enumerate(words) if word == "--problem"]
            assert len(texts) > 20
            # A problem that it cannot read it refuses before it looks for a GPU.
            done = subprocess.run([sys.argv[2], "roofline", *texts], env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True,
                                  check=False)
            assert "no GPU here" in done.stderr, done.stderr


if __name__ == "__main__":
    main()
