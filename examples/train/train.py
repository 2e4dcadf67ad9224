"""Fits a line to noisy points by gradient descent; needs nothing but Python.

    gpulayer submit --source examples/train -- python3 train.py --epochs 40

Prints the loss as it goes and leaves weights.json in GPULAYER_OUTPUT_DIR, which comes home.
"""

import argparse
import json
import os
import random


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.3)
    args = parser.parse_args()

    rng = random.Random(7)
    points = [(x / 50 - 1, 3 * (x / 50 - 1) + 0.5 + rng.gauss(0, 0.1)) for x in range(100)]
    w = b = 0.0
    for epoch in range(1, args.epochs + 1):
        errors = [(w * x + b - y, x) for x, y in points]
        w -= args.lr * 2 * sum(e * x for e, x in errors) / len(points)
        b -= args.lr * 2 * sum(e for e, _ in errors) / len(points)
        if epoch % 10 == 0:
            print(f"epoch {epoch}: loss {sum(e * e for e, _ in errors) / len(points):.4f}")

    folder = os.environ.get("GPULAYER_OUTPUT_DIR", ".")
    with open(os.path.join(folder, "weights.json"), "w") as file:
        json.dump({"w": round(w, 3), "b": round(b, 3)}, file)


if __name__ == "__main__":
    main()
