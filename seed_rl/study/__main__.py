"""`seed-rl study`."""

import sys

from seed_rl.common.system.extras import missing_extra

if __name__ == "__main__":
    try:
        from seed_rl.study import program
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        sys.exit(f"error: {missing_extra('study', 'A study', error)}")
    sys.exit(program.main())
