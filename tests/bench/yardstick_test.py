#!/usr/bin/env python3
"""pytorch_yardstick.py without PyTorch and without a GPU: what it makes of several builds of flashdma-bench.

    yardstick_test.py <pytorch_yardstick.py> [<flashdma-bench>]

With flashdma-bench, it also reads the file.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

# No problem is timed by it: none is what its backends can do.
TORCH = """
class _Named:
    def __getattr__(self, name): return name
class cuda:
    is_available = staticmethod(lambda: True)
    get_device_name = staticmethod(lambda index: "NVIDIA Test")
class backends:
    class cudnn:
        version = staticmethod(lambda: 91900)
class nn: pass
__version__ = "0"
SDPBackend, sdpa_kernel = _Named(), None
"""

BENCH = """#!{python}
import json, sys
arguments = sys.argv[1:]
problems = [arguments[i + 1] for i, word in enumerate(arguments) if word == "--problem"]
with open(arguments[arguments.index("--json") + 1], "w") as file:
    json.dump({{"backend": "flashdma_bwd", "driver": "1", "toolkit": "CUDA 13.0", "library": "0", "table_hash": "{table}",
               "results": [{{"set": "", "problem": problem, "kernel": "{kernel}", "row": "configs/tables/sm90.yaml:5", "ms": {ms}, "tflops": 1.0}}
                           for problem in problems]}}, file)
"""
PROBLEM = "b=1 h=2 d=64 s=256 deterministic"


def main():
    yardstick = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "torch/nn").mkdir(parents=True)
        (folder / "torch/__init__.py").write_text(TORCH)
        (folder / "torch/nn/__init__.py").write_text("")
        (folder / "torch/nn/attention.py").write_text("from torch import SDPBackend, sdpa_kernel\n")
        for build, table, kernel, ms in (("hopper", "01", "bwd_sm90_d64_bf16_hopper", 1.5), ("ampere", "02", "bwd_sm90_d64_bf16_ampere", 3)):
            program = folder / build
            program.write_text(BENCH.format(python=sys.executable, table=table, kernel=kernel, ms=ms))
            program.chmod(0o755)

        def run(*arguments):
            command = [sys.executable, yardstick, "--problem", PROBLEM, "--backend", "flash", *arguments]
            return subprocess.run(command, env={"PYTHONPATH": name}, capture_output=True, text=True, check=False)

        def results(*arguments):
            done = run("--json", str(folder / "results.json"), *arguments)
            assert done.returncode == 0, done.stderr
            return json.loads((folder / "results.json").read_text()), done.stdout

        one, _ = results("--with", str(folder / "hopper"))
        assert [result["backend"] for result in one["results"]] == ["flashdma_bwd", "pytorch_flash"], one
        assert one["table_hash"] == "01" and "programs" not in one, one

        both, table = results("--with", f"flashdma_bwd={folder}/hopper", "--with", f"flashdma_bwd_ampere={folder}/ampere")
        assert [result["backend"] for result in both["results"]] == ["flashdma_bwd", "flashdma_bwd_ampere", "pytorch_flash"], both
        assert [result.get("ms") for result in both["results"]] == [1.5, 3, None], both
        assert both["table_hash"] == "01" and both["programs"]["flashdma_bwd_ampere"]["table_hash"] == "02", both
        assert "flashdma_bwd_ampere" in table.splitlines()[0], table

        for wrong in (["--with", f"{folder}/hopper", "--with", f"{folder}/ampere"], ["--with", "=x"], ["--with", f"pytorch_flash={folder}/hopper"],
                      ["--with", "/usr/bin/true"]):
            assert run(*wrong).returncode != 0, wrong

        for wrong, why in ((["--samples", "0"], "must be a number, 1 or more"), (["--sustain", "nan"], "must be a number, 0 or more")):
            done = run(*wrong)
            assert done.returncode == 2 and why in done.stderr, done.stderr
        # There are as many keys as queries where only these are given, as in flashdma-bench.
        keys = "import pytorch_yardstick as y; print([y.parse_problem(text)['sk'] for text in ('sq=256', 's=128 sq=64', 'sq=64 sk=32', 's=8')])"
        done = subprocess.run([sys.executable, "-c", keys], capture_output=True, text=True, check=False,
                              env={"PYTHONPATH": f"{name}:{pathlib.Path(yardstick).parent}"})
        assert done.stdout == "[256, 64, 32, 8]\n", done

        # What cannot be written leaves what was there.
        before = (folder / "results.json").read_text()
        done = run("--json", str(folder / "torch"), "--with", str(folder / "hopper"))
        assert done.returncode == 1 and "cannot be written" in done.stderr, done.stderr
        assert (folder / "results.json").read_text() == before and not (folder / "torch.new").exists()

        if len(sys.argv) > 2:
            page = folder / "page.html"
            both["results"] = [result for result in both["results"] if "ms" in result]
            (folder / "results.json").write_text(json.dumps(both))
            subprocess.run([sys.argv[2], "report", str(folder / "results.json"), "--output", str(page)], check=True, stdout=subprocess.DEVNULL)
            assert "flashdma_bwd_ampere, ms" in page.read_text()


if __name__ == "__main__":
    main()
