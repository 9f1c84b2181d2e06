"""The check of an environment: what is wrong, what it costs, and how to fix it."""

from seed_rl.check_env.checker import CheckConfig as CheckConfig
from seed_rl.check_env.checker import check as check
from seed_rl.check_env.checker import report as report
