"""`python -m pokayoke.demo`."""

from __future__ import annotations

import argparse
import sys

from pokayoke.demo import main

parser = argparse.ArgumentParser(prog="python -m pokayoke.demo", description="One faulty model, unguarded and guarded.")
parser.add_argument("--json", action="store_true", help="print one JSON document")
parser.add_argument("--only", action="append", metavar="NAME", help="a scenario, or part of its name; may be repeated")
parser.add_argument("--verbose", action="store_true", help="show every call")
options = parser.parse_args()
sys.exit(main(json=options.json, only=options.only, verbose=options.verbose))
