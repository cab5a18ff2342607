"""``python -m skdpot``: the commands of `skdpot._command`."""

import sys

from skdpot._command import main

if __name__ == "__main__":
    sys.exit(main())
