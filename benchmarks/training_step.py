"""Speed of a training step, as a ratio against the token-by-token pass run beside it.

    python benchmarks/training_step.py [--threads N] [--repeats N] [--heads 4 4]

A step is forward, backward and Adam on 128 one-shot tasks of 48 tokens, width 512. Both sides train
the same parameters by the same Adam: one by paths (`attnpaths.network.AttentionPathNetwork`), the
other through the values of every token in every layer (`attnpaths.network.token_by_token`). Steps
of both alternate, so that other load on the machine falls on both; the median is reported. With
one thread (the default) times are processor time, else wall time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

# glibc gives large arrays back to the system and faults them in anew at every step; keep them.
if "MALLOC_MMAP_THRESHOLD_" not in os.environ and sys.platform == "linux":
    os.environ |= {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch

from attnpaths.network import token_by_token
from attnpaths.tasks import one_shot
from attnpaths.training import TrainingConfig, one_shot_network, run_name


def main() -> None:
    """Time both sides and print a row of a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, nargs="+", default=[4, 4])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter

    config = TrainingConfig(heads=tuple(arguments.heads))
    images = one_shot.load_images("digits", "train")
    tasks = one_shot.draw_tasks(0, config.batch, images)
    y = torch.from_numpy(tasks.y).float()
    patches = torch.from_numpy(images.patches[tasks.classes, tasks.drawings]).flatten(1, 2)
    x = torch.from_numpy(
        one_shot.task_tokens(images, tasks, one_shot.label_embedding(config.seed), "float32")
    )
    by_path, plain = one_shot_network(config), one_shot_network(config)
    sides = {
        "by paths": (by_path, lambda: by_path(patches)),
        "token by token": (plain, lambda: token_by_token(plain, x)),
    }
    optimisers = {
        name: torch.optim.Adam(network.parameters(), config.learning_rate, fused=True)
        for name, (network, _) in sides.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, float] = {}
    for repeat in range(arguments.repeats + 2):  # the first two warm up
        for name, (_, forward) in sides.items():
            start = clock()
            optimisers[name].zero_grad()
            loss = (forward() - y).square().mean()
            loss.backward()
            optimisers[name].step()
            if repeat >= 2:
                seconds[name].append(clock() - start)
            losses[name] = loss.item()
    median = {name: statistics.median(times) for name, times in seconds.items()}
    ours, baseline = (1000 * median[name] for name in sides)
    print("| what | attnpaths | baseline | ratio |\n|---|---|---|---|")
    print(
        f"| training step, {run_name(config.heads)} heads, width {config.width}, "
        f"batch {config.batch} | {ours:.0f} ms | token by token: {baseline:.0f} ms | "
        f"{baseline / ours:.0f} x |"
    )
    print("losses after the last step:", ", ".join(f"{n} {v:.6f}" for n, v in losses.items()))


if __name__ == "__main__":
    main()
