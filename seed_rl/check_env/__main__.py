"""Checks an environment: what is wrong, what it costs, and how to fix it.

    seed-rl check my_package.maze:make --env_kwargs='{"size": 9}'

Accepts the same environment options as the programs of `seed_rl.gym`. The exit code is 0 if
agents can train on it, 1 if something must be fixed, 2 if there is no such environment.
"""

from __future__ import annotations

from seed_rl import check_env
from seed_rl.common.config.options import define_flags, from_flags, run_main
from seed_rl.gym.env import GymConfig


def main() -> None:
    """Checks the environment of the command line."""
    define_flags(GymConfig, check_env.CheckConfig)

    def run() -> int:
        facts, findings = check_env.check(from_flags(GymConfig), from_flags(check_env.CheckConfig))
        print(check_env.report(facts, findings))
        return int(any(finding.must for finding in findings))

    run_main(run)


if __name__ == "__main__":
    main()
