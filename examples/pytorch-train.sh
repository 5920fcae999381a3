#!/bin/sh
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
#
# Trains a small classifier with PyTorch. It saves a checkpoint into the job's shared directory after each epoch and when
# it is asked to end (SIGTERM), and goes on from there when the scheduler runs the job again: the losses are then the same
# as those of a run that nobody interrupted. Needs python3 with torch 1.13 or newer: Debian's python3-torch is enough.
# PYTHON names another interpreter. Called with the paths of its input and of its result.
#
# Parameters, one JSON object, all optional: epochs (20), seed (0), learning_rate (0.05), hidden (32), batch (32),
# samples (512), and sleep (0): seconds to wait after each epoch, to give tests the time to interrupt it.
#
# Exit status: 2 bad input, 3 no python3 with torch, 4 the training diverged; ended by SIGTERM after a checkpoint.
set -u
[ $# -eq 2 ] || { echo 'usage: pytorch-train.sh INPUT RESULT' >&2; exit 2; }

python=
for candidate in "${PYTHON-}" python3 /usr/bin/python3; do
  [ -n "$candidate" ] || continue
  if "$candidate" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo 'pytorch-train: there is no python3 with torch here (Debian: python3-torch)' >&2; exit 3; }

# Replaced, not run as a child: a signal for the job reaches the training itself.
exec "$python" - "$@" <<'PYTHON'
import json, os, pickle, signal, sys, threading

LIMITS = {  # name: (default, type, least, most)
    "epochs": (20, int, 1, 100_000),
    "seed": (0, int, 0, 2**31 - 1),
    "learning_rate": (0.05, float, 1e-6, 1e6),
    "hidden": (32, int, 1, 4096),
    "batch": (32, int, 1, 65_536),
    "samples": (512, int, 2, 1_000_000),
    "sleep": (0.0, float, 0, 3600),
}


def fail(status, message):
    print(f"pytorch-train: {message}", file=sys.stderr)
    sys.exit(status)


def read_parameters(path):
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except (OSError, ValueError) as error:
        fail(2, f"cannot read the input: {error}")
    if not isinstance(given, dict):
        fail(2, "the input is not a JSON object")
    for name in given:
        if name not in LIMITS:
            fail(2, f"unknown parameter {name!r}; there are {', '.join(LIMITS)}")
    parameters = {}
    for name, (default, kind, least, most) in LIMITS.items():
        value = given.get(name, default)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or (kind is int and value != int(value)) or not least <= value <= most:
            fail(2, f"{name} has to be {'a whole' if kind is int else 'a'} number from {least} to {most}, not {value!r}")
        parameters[name] = kind(value)
    return parameters


def write_whole(path, write):
    """A reader sees the old file or the new one, also after a crash."""
    with open(f"{path}.new", "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


input_path, result_path = sys.argv[1:]
parameters = read_parameters(input_path)
checkpoint_path = os.path.join(os.path.dirname(os.path.abspath(result_path)), "checkpoint.pt")

# From here on a request to end waits for the next checkpoint; importing torch takes seconds.
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: stop.set())

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what CUDA needs to be deterministic
import torch

torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
torch.manual_seed(parameters["seed"])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# Two interleaved half circles.
angles = torch.rand(parameters["samples"]) * torch.pi
labels = torch.arange(parameters["samples"]) % 2
sign = 1.0 - 2.0 * labels
points = torch.stack([torch.cos(angles) * sign + labels, torch.sin(angles) * sign + 0.5 * labels], dim=1)
points = (points + 0.1 * torch.randn(points.shape)).to(device)
labels = labels.to(device)

hidden = parameters["hidden"]
model = torch.nn.Sequential(torch.nn.Linear(2, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=parameters["learning_rate"], momentum=0.9)

losses = []
position = {"epoch": 0, "batch": 0, "loss": 0.0}  # the next thing to do, and this epoch's losses so far
resumed_from = None


def save():
    state = {
        # As text: the loader that runs no code knows tensors and text, and in older releases no plain floats.
        "progress": json.dumps({"parameters": parameters, "position": position, "losses": losses}),
        "model": model.state_dict(),
        "momenta": optimizer.state_dict()["state"],
    }
    write_whole(checkpoint_path, lambda file: torch.save(state, file))


def end_if_asked():
    if stop.is_set():
        save()
        print(f"asked to end; saved at epoch {position['epoch']}, batch {position['batch']}", flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


if os.path.exists(checkpoint_path):
    try:
        state = torch.load(checkpoint_path, map_location=device, weights_only=True)
        progress = json.loads(state["progress"])
        if progress["parameters"] != parameters:
            fail(2, f"{checkpoint_path} is of a run with other parameters")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state["momenta"]})
        position, losses = progress["position"], progress["losses"]
        resumed_from = position["epoch"]
        print(f"resumed at epoch {position['epoch']}, batch {position['batch']}", flush=True)
    except (OSError, RuntimeError, KeyError, EOFError, TypeError, ValueError, pickle.UnpicklingError) as error:
        fail(4, f"cannot read {checkpoint_path}, remove it to start anew: {error!r}")

while position["epoch"] < parameters["epochs"]:
    # The order depends on the seed and the epoch alone, so an epoch can be resumed in its middle.
    order = torch.randperm(
        parameters["samples"],
        generator=torch.Generator().manual_seed(parameters["seed"] * 1_000_003 + position["epoch"]),
    )
    batches = order.split(parameters["batch"])
    while position["batch"] < len(batches):
        end_if_asked()
        chosen = batches[position["batch"]].to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(points[chosen]), labels[chosen])
        if not torch.isfinite(loss):
            fail(4, f"the loss is {loss.item()} in epoch {position['epoch']}: try a smaller learning_rate")
        loss.backward()
        optimizer.step()
        position["loss"] += loss.item() * len(chosen)
        position["batch"] += 1
    losses.append(position["loss"] / parameters["samples"])
    position = {"epoch": position["epoch"] + 1, "batch": 0, "loss": 0.0}
    save()
    print(f"epoch {position['epoch']} of {parameters['epochs']}: loss {losses[-1]:.6f}", flush=True)
    if parameters["sleep"] > 0:
        stop.wait(parameters["sleep"])
    end_if_asked()

with torch.no_grad():
    accuracy = (model(points).argmax(dim=1) == labels).double().mean().item()
result = {
    "epochs": parameters["epochs"],
    "losses": losses,
    "accuracy": accuracy,
    "resumed_from_epoch": resumed_from,
    "seed": parameters["seed"],
    "torch": str(torch.__version__),
    "device": device.type,
}
write_whole(result_path, lambda file: file.write(json.dumps(result, allow_nan=False).encode()))
PYTHON
