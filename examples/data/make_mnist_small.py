"""How `mnist-small.npz` was made from the whole MNIST set.

    python examples/data/make_mnist_small.py MNIST.npz

MNIST.npz holds `train` (60000, 784), `train_label` (60000,) and `test` (10000, 784), all uint8, in
the order of the original files. The subset is the first 10,000 training images with their labels and
the first 500 test images; nothing is changed in them.
"""

import sys
from pathlib import Path

import numpy as np

TRAIN_ROWS = 10_000
TEST_ROWS = 500


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    whole = np.load(sys.argv[1])
    target = Path(__file__).with_name("mnist-small.npz")
    np.savez_compressed(
        target,
        train=whole["train"][:TRAIN_ROWS],
        train_label=whole["train_label"][:TRAIN_ROWS],
        test=whole["test"][:TEST_ROWS],
    )
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
