"""`seed-rl study`."""

import sys

from seed_rl.common.system.extras import missing_extra

if __name__ == "__main__":
    try:
        from seed_rl.study import program

        sys.exit(program.main())
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("optuna", "scipy"):
            raise
        sys.exit(f"error: {missing_extra('study', 'A study', error)}")
