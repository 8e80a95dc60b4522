"""`torchrun ... -m ssfx.profile_network --out cluster.yaml`: the nodes it runs on become a file for cluster=FILE."""

from __future__ import annotations

import sys

from ssfx.calibration.own_cluster import main

if __name__ == "__main__":
    sys.exit(main())
