"""Claims an index in the given directory, then execs a program, as an actor would.

The program waits for the end of its input.
"""

import os
import pathlib
import sys

from seed_rl.cluster import indices

print(indices.claim(pathlib.Path(sys.argv[1]), "actor", 3), flush=True)
os.execv("/bin/cat", ["cat"])
