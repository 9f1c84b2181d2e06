"""A main program on a machine with several devices: here, logical CPUs.

many_devices.py MODULE [flags of the module]
"""

import runpy
import sys

from tests.helpers.logical_devices import make_cpus


def main() -> None:
    make_cpus(4)
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
