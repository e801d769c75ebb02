"""``python -m glassformer`` is the ``glass`` command."""

import sys

from glassformer.app.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
