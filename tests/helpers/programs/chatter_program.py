"""Writes a text to its standard error without chatter, then exits.

chatter_program.py TEXT abort|return
"""

import os
import sys

from seed_rl.common.system import chatter


def main():
    _, text, end = sys.argv
    with chatter.left_out():
        os.write(2, text.encode())
        if end == "abort":
            os.abort()
    os.write(2, b"afterwards")


if __name__ == "__main__":
    main()
