"""Training by gradient descent on one-shot tasks (torch).

`train` runs Adam on tasks drawn afresh every step, keeps the network that did best on held-back
characters, and writes checkpoints from which a stopped run goes on to the same result, bit for bit:
the tasks of a step depend on the seed and the number of the step alone. `python -m attnpaths train`
does so from the command line and writes the trained heads as a small file (`attnpaths.trained`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from tqdm import tqdm

from attnpaths._files import atomic_path
from attnpaths._validation import as_array, as_choice, as_count, as_number, as_positive
from attnpaths.network import AttentionPathNetwork
from attnpaths.paths import as_heads
from attnpaths.tasks import one_shot
from attnpaths.tasks.one_shot import Images, Tasks, draw_tasks
from attnpaths.trained import TrainedHeads, save_trained_heads

__all__ = [
    "TrainingConfig",
    "TrainingResult",
    "accuracy",
    "fine_tune_network",
    "gradients",
    "one_shot_network",
    "reduce_network",
    "train",
]

# Tasks are drawn from [seed, step]; these stand for steps that are never reached.
VALIDATION_DRAW, TEST_DRAW = 2**32 - 1, 2**32 - 2
# A batch is always cut in as many pieces, so that results do not depend on the number of cores.
PIECES = 2


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of a run; two runs of equal settings have equal results.

    Parameters
    ----------
    heads : sequence of int
        Heads a layer.
    key_width : int, optional
        Size G of queries and keys; default ``width // max(heads)``.
    width : int
        Width N of the values.
    batch : int
        Tasks a step.
    learning_rate, weight_decay : float
        Of Adam.
    seed : int
        Of initial parameters, label embedding and tasks.
    checkpoint_every : int
        Steps between checkpoints; at each the validation accuracy is measured.
    validation_tasks : int
        Tasks it is measured on.
    data : {"omniglot", "digits"}
        Images.

    Raises
    ------
    ValueError
        If a setting is out of range.

    Examples
    --------
    >>> config = TrainingConfig(heads=(2, 3), width=12, data="digits")
    >>> config.key_width  # of 12 values for at most 3 heads a layer
    4
    """

    heads: tuple[int, ...] = (4, 4)
    key_width: int = 0
    width: int = 512
    batch: int = 128
    learning_rate: float = 3e-4
    weight_decay: float = 5e-5
    seed: int = 0
    checkpoint_every: int = 500
    validation_tasks: int = 5000
    data: str = "omniglot"

    def __post_init__(self) -> None:
        heads = as_heads(self.heads)
        object.__setattr__(self, "heads", heads)
        for name in ("width", "batch", "checkpoint_every", "validation_tasks"):
            as_count(name, getattr(self, name))
        as_count("seed", self.seed, 0)
        as_count("key_width", self.key_width, 0)
        if not self.key_width:
            object.__setattr__(self, "key_width", max(self.width // max(heads), 1))
        as_positive("learning_rate", self.learning_rate)
        if as_number("weight_decay", self.weight_decay) < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay!r}")
        as_choice("data", self.data, ("omniglot", "digits"))

    def to_json(self) -> str:
        """Settings as text, for checkpoints.

        Examples
        --------
        >>> TrainingConfig(heads=(2, 2), seed=3).to_json()[:32]
        '{"batch": 128, "checkpoint_every'
        """
        return json.dumps(asdict(self), sort_keys=True)

    def command(self, steps: int) -> str:
        """The command that makes this run.

        Examples
        --------
        >>> TrainingConfig(heads=(2, 3)).command(steps=1000)[:57]
        'python -m attnpaths train --steps 1000 --heads 2 3 --key-'
        """
        words = ["python", "-m", "attnpaths", "train", "--steps", str(steps)]
        for item in fields(self):
            words.append("--" + item.name.replace("_", "-"))
            value = getattr(self, item.name)
            words.extend(map(str, value) if item.name == "heads" else [str(value)])
        return shlex.join(words)


class TrainingResult(NamedTuple):
    """What `train` returns.

    Attributes
    ----------
    network : AttentionPathNetwork
        The network of best validation accuracy.
    best_step : int
        The step at which it was reached.
    best_accuracy : float
        Its accuracy on the validation tasks.
    history : list of (int, float, float)
        At each checkpoint: step, mean training loss since the last one, validation accuracy.
    steps : int
        Steps done.

    Examples
    --------
    >>> from attnpaths.tasks.one_shot import load_images
    >>> seen, others = load_images("digits", "train"), load_images("digits", "validation")
    >>> config = TrainingConfig((2, 2), width=8, batch=4, checkpoint_every=1, validation_tasks=10)
    >>> result = train(config, 2, training=seen, validation=others, progress=False)
    >>> result.steps, [step for step, loss, accuracy in result.history], result.network.heads
    (2, [1, 2], (2, 2))
    >>> result.best_accuracy == max(accuracy for _, _, accuracy in result.history)
    True
    """

    network: AttentionPathNetwork
    best_step: int
    best_accuracy: float
    history: list[tuple[int, float, float]]
    steps: int


def one_shot_network(config: TrainingConfig) -> AttentionPathNetwork:
    """Network for one-shot tasks at its start; it takes patches, (P, 48, 64).

    Examples
    --------
    >>> import torch
    >>> network = one_shot_network(TrainingConfig((2, 3), width=12))
    >>> network.heads, network(torch.randn(5, 48, 64)).shape
    ((2, 3), torch.Size([5]))
    """
    return AttentionPathNetwork(
        one_shot.FEATURES,
        config.heads,
        config.width,
        config.key_width,
        embedding=one_shot.CHANNELS,
        offset=one_shot.token_table(one_shot.label_embedding(config.seed)),
        generator=torch.Generator().manual_seed(config.seed),
    )


def train(
    config: TrainingConfig,
    steps: int,
    *,
    training: Images,
    validation: Images,
    folder: str | Path | None = None,
    progress: bool = True,
) -> TrainingResult:
    """Train a network on one-shot tasks: mean squared error on y = +-1, Adam.

    Parameters
    ----------
    config : TrainingConfig
        Settings.
    steps : int
        Number of steps, those before an interruption included.
    training, validation : Images
        Tasks are drawn from the former; accuracy is measured, and the best network chosen, on tasks
        from the latter.
    folder : path, optional
        Where ``checkpoint.pt`` is written, and read if it is there. Default: no checkpoints.
    progress : bool
        Whether to show a bar with the time left.

    Returns
    -------
    TrainingResult

    Raises
    ------
    ValueError
        If the folder holds a checkpoint of other settings or of more steps, or one that is damaged.

    Examples
    --------
    A run that was stopped goes on from its checkpoint to the same result:

    >>> import tempfile
    >>> from attnpaths.tasks.one_shot import load_images
    >>> seen, others = load_images("digits", "train"), load_images("digits", "validation")
    >>> sets = {"training": seen, "validation": others, "progress": False}
    >>> config = TrainingConfig((2, 2), width=8, batch=4, checkpoint_every=1, validation_tasks=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for steps in (1, 2):
    ...         result = train(config, steps, **sets, folder=folder)
    >>> result.history == train(config, 2, **sets).history
    True
    """
    steps = as_count("steps", steps)
    network = one_shot_network(config)
    adam = _adam(network, config)
    path = None if folder is None else Path(folder) / "checkpoint.pt"
    state: dict[str, Any] = {"step": 0, "history": [], "best": {"step": 0, "accuracy": -1.0}}
    if path is not None and path.exists():
        state = _read_checkpoint(path, config, steps)
        network.load_state_dict(state["network"])
        adam.load_state_dict(state["optimizer"])
    best, history = state["best"], state["history"]
    patches = torch.from_numpy(training.patches)
    check = draw_tasks(
        [config.seed, VALIDATION_DRAW], config.validation_tasks, validation, balanced=True
    )
    total, counted = 0.0, 0
    bar = tqdm(
        range(state["step"], steps),
        initial=state["step"],
        total=steps,
        desc="training",
        unit="step",
        disable=not progress,
    )
    with _one_core_a_piece() as pool:
        for step in bar:
            tasks = draw_tasks([config.seed, step], config.batch, training)
            total += _step(network, adam, patches, tasks, pool)
            counted += 1
            if (step + 1) % config.checkpoint_every and step + 1 < steps:
                continue
            found = accuracy(network, validation, check)
            history.append((step + 1, total / counted, found))
            bar.set_postfix(loss=f"{total / counted:.3f}", accuracy=f"{found:.3f}")
            total, counted = 0.0, 0
            if found > best["accuracy"]:
                weights = {name: value.clone() for name, value in network.state_dict().items()}
                best = {"step": step + 1, "accuracy": found, "network": weights}
            if path is not None and (step + 1) % config.checkpoint_every == 0:
                # only at whole intervals, so that a longer run goes on as if it had never stopped
                _write_checkpoint(path, config, step + 1, network, adam, history, best)
    if "network" in best:
        network.load_state_dict(best["network"])
    return TrainingResult(
        network, best["step"], best["accuracy"], [tuple(entry) for entry in history], steps
    )


def fine_tune_network(
    network: AttentionPathNetwork,
    training: Images,
    steps: int,
    config: TrainingConfig | None = None,
    *,
    progress: bool = False,
) -> AttentionPathNetwork:
    """Train a copy of a network for some more steps, after heads were dropped say.

    Parameters
    ----------
    network : AttentionPathNetwork
        From `one_shot_network`, `train` or `AttentionPathNetwork.without_heads`.
    training : Images
        Tasks are drawn from these.
    steps : int
        Number of steps.
    config : TrainingConfig, optional
        Learning rate, weight decay, batch and seed.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    AttentionPathNetwork

    Examples
    --------
    >>> from attnpaths.tasks.one_shot import load_images
    >>> config = TrainingConfig((2, 2), width=8, batch=4)
    >>> pruned = one_shot_network(config).without_heads([(1, 2)])
    >>> tuned = fine_tune_network(pruned, load_images("digits"), 2, config)
    >>> tuned.heads, bool((tuned.readout != pruned.readout).any())
    ((1, 2), True)
    """
    config = TrainingConfig() if config is None else config
    tuned = network.without_heads([])
    adam = _adam(tuned, config)
    patches = torch.from_numpy(training.patches)
    with _one_core_a_piece() as pool:
        for step in tqdm(range(as_count("steps", steps)), disable=not progress, unit="step"):
            tasks = draw_tasks([config.seed, step, 1], config.batch, training)
            _step(tuned, adam, patches, tasks, pool)
    return tuned


@torch.no_grad()
def accuracy(network: AttentionPathNetwork, images: Images, tasks: Tasks) -> float:
    """Share of tasks whose sign of y the network's output has.

    Examples
    --------
    >>> from attnpaths.tasks.one_shot import draw_tasks, load_images
    >>> images = load_images("digits", "test")
    >>> network = one_shot_network(TrainingConfig((2, 2), width=8))
    >>> 0 <= accuracy(network, images, draw_tasks(0, 20, images)) <= 1
    True
    """
    patches = torch.from_numpy(images.patches)
    contracted = network.contracted()
    right = 0
    for start in range(0, len(tasks), 64):
        part = tasks[start : start + 64]
        output = network.evaluate(_tokens(patches, part), contracted).numpy()
        right += int(np.count_nonzero((output > 0) == (part.y > 0)))
    return right / len(tasks)


def gradients(
    network: AttentionPathNetwork, tokens: Tensor, y: Tensor, pool: ThreadPoolExecutor | None = None
) -> float:
    """Add the gradient of the mean squared error to the parameters' `.grad`; return the error.

    The batch is cut in two pieces, each of which a thread of `pool` can do by itself: threads then
    meet once a step, and not in every product, which matters on a busy machine.

    Parameters
    ----------
    network : AttentionPathNetwork
        Its parameters get the gradient.
    tokens : Tensor, shape (P, T, D)
        Examples.
    y : Tensor, shape (P,)
        Labels.
    pool : ThreadPoolExecutor, optional
        Default: one piece after the other.

    Returns
    -------
    float

    Examples
    --------
    >>> import torch
    >>> network = one_shot_network(TrainingConfig((2, 2), width=8))
    >>> tokens, y = torch.randn(6, 48, 64), torch.ones(6)
    >>> error = gradients(network, tokens, y)
    >>> abs(error - (network(tokens) - y).square().mean().item()) < 1e-5
    True
    >>> network.readout.grad.shape
    torch.Size([8])
    """
    contracted = network.contracted()
    leaves = [part.detach().requires_grad_() for part in contracted]

    def piece(part: slice) -> tuple[float, tuple[Tensor, ...]]:
        error = network.evaluate(tokens[part], leaves) - y[part]
        loss = error.square().sum() / len(y)
        return loss.item(), torch.autograd.grad(loss, leaves)

    size = math.ceil(len(y) / PIECES)
    parts = [slice(start, start + size) for start in range(0, len(y), size)]
    results = list(map(piece, parts) if pool is None else pool.map(piece, parts))
    sums = [sum(each[1:], each[0]) for each in zip(*(g for _, g in results), strict=True)]
    torch.autograd.backward(contracted, sums)
    return sum(loss for loss, _ in results)


def reduce_network(
    network: AttentionPathNetwork, embedding: ArrayLike, metadata: dict[str, Any] | None = None
) -> TrainedHeads:
    """Reduce a network to what `attnpaths.trained` keeps of it.

    Parameters
    ----------
    network : AttentionPathNetwork
        Trained.
    embedding : array_like, shape (3, N0)
        Label embedding it was trained with.
    metadata : dict, optional
        Kept as it is.

    Returns
    -------
    TrainedHeads

    Examples
    --------
    >>> from attnpaths.tasks.one_shot import label_embedding
    >>> config = TrainingConfig((2, 3), width=12)
    >>> trained = reduce_network(one_shot_network(config), label_embedding(config.seed))
    >>> trained.heads, trained.weights.shape
    ((2, 3), (6, 192))
    """
    with torch.no_grad():
        reduced = network.path_network()
        queries, keys = (
            [part.double().numpy() for part in every.split(network.heads)]
            for every in (network.queries, network.keys)
        )
    return TrainedHeads(
        queries,
        keys,
        as_array("embedding", embedding, (3, network.features)),
        reduced.weights,
        network.order_parameters(),
        network.magnitudes(),
        dict(metadata or {}),
    )


# -- parts of a run ----------------------------------------------------------------------------


def _adam(network: AttentionPathNetwork, config: TrainingConfig) -> torch.optim.Adam:
    return torch.optim.Adam(
        network.parameters(),
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=True,
    )


def _tokens(patches: Tensor, tasks: Tasks) -> Tensor:
    chosen = patches[torch.from_numpy(tasks.classes), torch.from_numpy(tasks.drawings)]
    return chosen.flatten(1, 2)


def _step(
    network: AttentionPathNetwork,
    adam: torch.optim.Adam,
    patches: Tensor,
    tasks: Tasks,
    pool: ThreadPoolExecutor,
) -> float:
    adam.zero_grad()
    y = torch.from_numpy(tasks.y.astype(np.float32))
    loss = gradients(network, _tokens(patches, tasks), y, pool)
    adam.step()
    return loss


@contextlib.contextmanager
def _one_core_a_piece() -> Iterator[ThreadPoolExecutor]:
    """Threads for the pieces of a batch, in each of which torch uses one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(PIECES) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def _write_checkpoint(
    path: Path,
    config: TrainingConfig,
    step: int,
    network: AttentionPathNetwork,
    adam: torch.optim.Adam,
    history: list[tuple[int, float, float]],
    best: dict[str, Any],
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "config": config.to_json(),
        "step": step,
        "network": network.state_dict(),
        "optimizer": adam.state_dict(),
        "history": history,
        "best": best,
    }
    with atomic_path(path) as temporary:
        torch.save(state, temporary)


def _read_checkpoint(path: Path, config: TrainingConfig, steps: int) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True)
        saved, step = json.loads(state["config"]), int(state["step"])
    except Exception as error:  # torch raises many kinds
        raise ValueError(f"{path} cannot be read as a checkpoint: {error}") from error
    wanted = json.loads(config.to_json())
    for name, value in wanted.items():
        if saved.get(name) != value:
            raise ValueError(
                f"{path} is a run with {name} {saved.get(name)!r}, got {value!r}: name another "
                "folder, or remove this checkpoint to start anew"
            )
    if step > steps:
        raise ValueError(f"steps must be at least the {step} that {path} has done, got {steps}")
    return state


# -- command line ------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m attnpaths train`."""
    default = TrainingConfig()
    parser.add_argument("--steps", type=int, default=40_000, help="default: %(default)s")
    parser.add_argument(
        "--heads", type=int, nargs="+", default=default.heads, metavar="H", help="default: 4 4"
    )
    parser.add_argument(
        "--key-width", type=int, default=0, help="default: width divided by the most heads a layer"
    )
    for item in fields(TrainingConfig):
        if item.name not in ("heads", "key_width", "data"):
            value = getattr(default, item.name)
            parser.add_argument(
                "--" + item.name.replace("_", "-"),
                type=type(value),
                default=value,
                help="default: %(default)s",
            )
    parser.add_argument(
        "--data", choices=("omniglot", "digits"), default=default.data, help="default: %(default)s"
    )
    parser.add_argument(
        "--data-folder", type=Path, help="holds omniglot/; default: $ATTNPATHS_DATA, else download"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="for checkpoints, from which a stopped run goes on; default: runs/2x4_seed0 and so on",
    )
    parser.add_argument(
        "--output", type=Path, help="file of trained heads; default: trained_heads.npz in --folder"
    )
    parser.add_argument("--test-tasks", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Train, measure on unseen tasks, write the heads, and say what was reached."""
    names = [item.name for item in fields(TrainingConfig)]
    settings = {name: getattr(arguments, name) for name in names}
    config = TrainingConfig(**{**settings, "heads": tuple(settings["heads"])})
    folder = arguments.folder or Path("runs") / f"{run_name(config.heads)}_seed{config.seed}"
    output = arguments.output or folder / "trained_heads.npz"
    if output.suffix != ".npz":
        raise ValueError(f"output must end in .npz, got {output.name!r}")
    if arguments.output is not None and not output.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {output.parent} for the output")
    sets = {
        split: one_shot.load_images(config.data, split, arguments.data_folder)
        for split in ("train", "validation", "test")
    }
    result = train(
        config,
        arguments.steps,
        training=sets["train"],
        validation=sets["validation"],
        folder=folder,
        progress=not arguments.quiet,
    )
    trained = describe(result, config, sets["test"], arguments.test_tasks)
    output.parent.mkdir(parents=True, exist_ok=True)
    save_trained_heads(output, trained)
    found = trained.metadata["accuracies"]
    print(
        f"{run_name(config.heads)} heads, seed {config.seed}, best of {result.steps} steps at "
        f"{result.best_step}: {found['validation']:.1%} on validation tasks, {found['test']:.1%} "
        f"on {arguments.test_tasks} tasks of unseen {config.data} classes; written to {output}"
    )
    return 0


def describe(
    result: TrainingResult, config: TrainingConfig, test: Images, test_tasks: int = 10_000
) -> TrainedHeads:
    """Trained heads with all that is to be known of how they were made.

    Parameters
    ----------
    result : TrainingResult
        Of `train`.
    config : TrainingConfig
        Its settings.
    test : Images
        Unseen classes, for the accuracy on `test_tasks` tasks.
    test_tasks : int
        How many, half of each answer; the same tasks for every seed.

    Returns
    -------
    TrainedHeads
    """
    tasks = draw_tasks([0, TEST_DRAW], test_tasks, test, balanced=True)
    metadata = {
        "command": config.command(result.steps),
        "config": asdict(config),
        "seed": config.seed,
        "steps": result.steps,
        "best_step": result.best_step,
        "accuracies": {
            "validation": result.best_accuracy,
            "test": accuracy(result.network, test, tasks),
        },
        "tasks": {"validation": config.validation_tasks, "test": test_tasks},
        "training_curve": [[step, round(loss, 5), found] for step, loss, found in result.history],
        "torch": torch.__version__,
    }
    return reduce_network(result.network, one_shot.label_embedding(config.seed), metadata)


def run_name(heads: Sequence[int]) -> str:
    """Short name: 2x4 for two layers of four heads, 2-3 for layers of two and three."""
    if len(set(heads)) == 1:
        return f"{len(heads)}x{heads[0]}"
    return "-".join(map(str, heads))
