"""`python -m musegnn` is `muse`."""

import sys

from musegnn.cli.main import main

sys.exit(main())
