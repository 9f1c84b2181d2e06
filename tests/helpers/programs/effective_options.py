"""Prints a program's options, those that differ from the dataclasses', and their origins.

effective_options.py MODULE
"""

import dataclasses
import importlib
import json
import sys

from absl import flags

from seed_rl.common.acting import program  # noqa: F401 - before `options` is changed.
from seed_rl.common.config import flag_origins, options


def main():
    known = {}
    define = options.define_flags

    def define_flags(*classes, **layers):
        known.update({f.name: f.default for c in classes for f in dataclasses.fields(c)})
        define(*classes, **layers)

    options.define_flags, options.run_main = define_flags, lambda *_: None
    importlib.import_module(sys.argv.pop(1)).main()
    flags.FLAGS(sys.argv)
    values = {n: v for n, v in options.flag_dictionary().items() if n in known}
    changed = {n: v for n, v in values.items() if v != json.loads(json.dumps(known[n]))}
    print(json.dumps([values, sorted(changed), flag_origins.origins(values)]))


if __name__ == "__main__":
    main()
