"""Run the ``glass`` command as ``python -m glassformer``."""

import sys

from glassformer.app.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
