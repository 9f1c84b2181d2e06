"""Attacks a server behind its proxy, and reports what an honest client notices of it.

    python -m benchmarks.hostile [--attack=NAME ...] [--seconds=S] [--json=FILE]

For each attack: a new server and a new proxy, with the configuration that ships; an honest client
that calls all the time and checks the server's health; new clients that join during the attack and
after it. The attacker is a separate process, with lower priority: unauthenticated clients, or one
with a certificate and the token. All is on this machine, and bounded in number and time.

An attack fails, and the exit code is 1, if an honest client waits longer than 200 ms or gets an
error, if a new one is not answered within a second, or if the memory of server and proxy grows by
more than 256 MiB. Time in which the honest client's process did not run is not counted as waiting;
`quiet` is the same client before the attack.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

from benchmarks import report
from benchmarks.hostile.attacks import ATTACKS
from benchmarks.hostile.measuring import Range, Result


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--attack", action="append", choices=list(ATTACKS), help="only this one; may be repeated"
    )
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="length of an attack (%(default)s)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    options = parser.parse_args()
    results = []
    with Range() as attack_range:
        for name in options.attack or ATTACKS:
            results.append(attack_range.run(name, options.seconds))
            print_details(results[-1])
    print_results(results)
    report.write_json(options.json, {"attacks": [dataclasses.asdict(result) for result in results]})
    sys.exit(any(result.problems for result in results))


def print_results(results: list[Result]) -> None:
    """Prints a table of all attacks."""
    columns = ["attack", "p50 ms", "p99 ms", "max ms", "quiet p50", "quiet p99", "quiet max"]
    columns += ["newcomer ms", "MiB before", "peak", "after", "verdict"]
    rows = [
        [
            result.name,
            *result.waits_ms,
            *result.quiet_ms,
            result.newcomer_ms,
            *(round(mib) for mib in result.rss_mib),
            "FAILS" if result.problems else "passes",
        ]
        for result in results
    ]
    report.print_table("Honest clients beside attackers", columns, rows)


def print_details(result: Result) -> None:
    """Prints what was done in an attack, and what failed."""
    counts = ", ".join(f"{count:,} {what}" for what, count in result.counts.items())
    print(f"{result.name}: {counts or 'nothing'}", flush=True)
    for problem in result.problems:
        print(f"  FAILS: {problem}", flush=True)


if __name__ == "__main__":
    main()
