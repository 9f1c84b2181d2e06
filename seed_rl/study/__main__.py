"""`python -m seed_rl.study`."""

import sys

from seed_rl.study import program

if __name__ == "__main__":
    sys.exit(program.main())
