"""attn bench, whose figures are held against this machine's limits, several times."""

import json
import statistics
import subprocess


def middle(runs):
    """Of each figure the run in the middle: what holds there held in most of the runs."""
    def of_row(rows):
        return sorted(rows, key=lambda row: row["reached"])[len(rows) // 2]

    def of_limit(limits):
        return {key: statistics.median(limit[key] for limit in limits)
                if limits[0][key] else limits[0][key] for key in limits[0]}

    return {**runs[0], "runs": len(runs),
            "rows": [of_row(rows) for rows in zip(*(run["rows"] for run in runs), strict=True)],
            "limits": [of_limit(limits)
                       for limits in zip(*(run["limits"] for run in runs), strict=True)]}


def measure(command, count, seconds, say):
    told = [str(command), "bench", "--full", "--json"]
    if seconds:
        told += ["--seconds", str(seconds)]
    runs = []
    for n in range(count):
        say("  " + " ".join(["attn", *told[1:]]) + f" ({n + 1} of {count})")
        runs.append(json.loads(subprocess.run(told, check=True, stdout=subprocess.PIPE,
                                              text=True).stdout))
    return middle(runs)
