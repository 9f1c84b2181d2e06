#!/usr/bin/env python3
"""One replica of a custom job: `python -m seed_rl.cluster.google_cloud`, by its path.

For images of your own that copy this repository; ours run the module, which is in the package.
"""

import sys

from seed_rl.cluster.google_cloud import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
