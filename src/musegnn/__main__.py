"""`python -m musegnn` is `muse`."""

import sys

from musegnn.cli.start import main

sys.exit(main())
