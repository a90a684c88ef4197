"""What the scripts that measure have in common: files that are written whole or not at all, numbers of command lines, flashdma-bench."""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile


def write_file(path, text):
    """Whole or not at all, by way of a file beside it."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def write_json(path, value):
    """A file of --json. Ends the program where it cannot be written."""
    try:
        write_file(path, json.dumps(value, indent=2) + "\n")
    except OSError as error:
        sys.exit(f"{path} cannot be written: {error.strerror}; what was there before is there still")


def count(text):
    """A number of timings, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` must be a number, 1 or more")
    return int(text)


def duration(text):
    """Of seconds or milliseconds, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"`{text}` must be a number, 0 or more")
    return value


def bench_report(bench, *words):
    """What flashdma-bench writes to --json. Ends the program where it writes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        command = [bench, *words, "--json", str(path)]
        run = subprocess.run(command, check=False, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"`{' '.join(command)}` ended with {run.returncode}:\n{run.stdout}{run.stderr}")
        return json.loads(path.read_text(encoding="utf-8"))
