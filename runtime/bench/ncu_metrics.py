"""What Nsight Compute counts of the kernels of one command. `ncu` is looked for on PATH."""
import csv
import re
import subprocess
import sys


def kernel_metrics(command, metrics, kernels, skip, count):
    """Of `count` launches of kernels whose name matches `kernels`, behind `skip` of them: (name, {name of a metric: its figure}) each.

    `metrics`: ncu's name of each. Ends the program where ncu has no launch or no figure.
    """
    run = subprocess.run(["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--metrics",
                          ",".join(metrics.values()), "--kernel-name", f"regex:{kernels}", "--launch-skip", str(skip),
                          "--launch-count", str(count), *command], check=False, capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith('"')]
    if run.returncode != 0 or len(lines) < 3:
        sys.exit(f"ncu found no kernel {kernels} of {' '.join(command)}:\n{run.stdout}{run.stderr}")
    names, _, *launches = csv.reader(lines)
    counted = []
    for values in launches:
        row = dict(zip(names, values))
        missing = [metric for metric in metrics.values() if not re.fullmatch(r"[\d.,]+", row.get(metric, ""))]
        if missing:
            sys.exit(f"ncu has no figure for {', '.join(missing)} on this GPU; `ncu --query-metrics` lists what it has")
        counted.append((row["Kernel Name"], {name: float(row[metric].replace(",", "")) for name, metric in metrics.items()}))
    return counted
