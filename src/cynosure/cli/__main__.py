"""`python -m cynosure.cli` is the command `cynosure` too."""

from __future__ import annotations

import sys

from . import main

sys.exit(main())
