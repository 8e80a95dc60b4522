"""`torchrun ... -m ssfx.lab.profile_network --out cluster.yaml`: its nodes become a file for cluster=FILE."""

import sys

from ssfx.lab.calibration.own_cluster import main

if __name__ == "__main__":
    sys.exit(main())
