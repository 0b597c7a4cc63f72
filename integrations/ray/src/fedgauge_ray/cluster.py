"""A Ray cluster: joining or starting one, and sending it values and tasks; no other module uses Ray.

Arrays are sent beside the message. The samples of a federation are then read in place, from one copy in each machine's
object store. All other arrays are copied, because the store is read-only.
"""

from __future__ import annotations

import io
import logging
import os
import pickle
import re
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch

from fedgauge.base.errors import InputError, MachineError
from fedgauge.federation.shards import ShardedData
from fedgauge.simulation.engines.cluster import Cluster
from fedgauge_ray.reaper import reaped

_LEAST = (2, 55)
"""The oldest release of Ray that works."""
_TRIES = 8
"""How often a task is retried after its process or its machine was lost."""
_WAIT = 5.0
"""Seconds within which an address must answer."""
_SAME = ("fedgauge", "torch", "numpy")
"""Packages that must have the same version everywhere, as other versions may round differently."""


# -- messages ----------------------------------------------------------------------------------------------------


class Packed(NamedTuple):
    """A value as bytes, its arrays beside them, and for each array whether it is read in place."""

    content: bytes
    arrays: list[Any]
    stay: list[bool]


def _laid_out(kept: Mapping[str, Any], tensors: Mapping[str, Any]) -> ShardedData:
    """Samples that are read in place, which is safe because nobody writes to them."""
    data = object.__new__(ShardedData)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        data.__dict__ = {**kept, **{name: torch.from_numpy(array) for name, array in tensors.items()}}
    return data


def _is_plain(value: Any) -> bool:
    return type(value) is torch.Tensor and value.device.type == "cpu" and value.dtype != torch.bfloat16


@cache
def _pickler() -> Any:
    base: Any = _import().cloudpickle.CloudPickler

    class Pickler(base):  # type: ignore[misc]  # mypy does not know Ray's types if it is not installed
        def __init__(self, file: io.BytesIO) -> None:
            self.stay: set[int] = set()
            self.buffers: list[pickle.PickleBuffer] = []
            super().__init__(file, protocol=5, buffer_callback=self.buffers.append)

        def reducer_override(self, item: Any) -> Any:
            if type(item) is ShardedData:
                tensors = {name: part.numpy() for name, part in vars(item).items() if _is_plain(part)}
                self.stay |= {array.ctypes.data for array in tensors.values()}
                return _laid_out, ({name: part for name, part in vars(item).items() if name not in tensors}, tensors)
            if _is_plain(item):
                return torch.from_numpy, (item.detach().numpy(),)
            return super().reducer_override(item)

    return Pickler


def pack(value: Any) -> Packed:
    """Serialise a value; functions and classes of the user's main program are sent by value, not by name."""
    file = io.BytesIO()
    pickler = _pickler()(file)
    pickler.dump(value)
    arrays = [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in pickler.buffers]
    return Packed(file.getvalue(), arrays, [array.ctypes.data in pickler.stay for array in arrays])


def unpack(packed: Packed) -> Any:
    """Restore a value that :func:`pack` serialised."""
    arrays = [array if stays else array.copy() for array, stays in zip(packed.arrays, packed.stay, strict=True)]
    return pickle.loads(packed.content, buffers=arrays)


# -- on a machine of the cluster ---------------------------------------------------------------------------------


class _Home(NamedTuple):
    """The environment that a process of the cluster takes over from the process that sends it tasks."""

    directory: str
    modules: tuple[str, ...]
    data: str | None
    versions: Mapping[str, str]


def _home() -> _Home:
    here = os.getcwd()
    entries = [os.path.abspath(entry) for entry in sys.path]
    modules = dict.fromkeys([*entries[:1], *(entry for entry in entries if entry == here)])
    data = os.environ.get("FEDGAUGE_DATA")
    return _Home(here, tuple(modules), data, {name: version(name) for name in _SAME})


_settled: _Home | None = None
_held: tuple[str, Any] = ("", None)


def _settle(home: _Home) -> None:
    """Switch to the sender's directory and to one thread; refuse versions that differ from the sender's."""
    global _settled
    if home == _settled:
        return
    for name, wanted in home.versions.items():
        if version(name) != wanted:
            raise InputError(
                f"The cluster's machine {socket.gethostname()} has {name} {version(name)}, but this one has {wanted},"
                " so results would differ; install the same version on both."
            )
    with suppress(OSError):  # a machine without this directory may still have everything that the task needs
        os.chdir(home.directory)
    sys.path += [entry for entry in home.modules if entry not in sys.path]
    if home.data is not None:
        os.environ["FEDGAUGE_DATA"] = home.data
    torch.set_num_threads(1)
    _settled = home


def _there(name: str, placed: Packed | None, shared: Packed | None, task: Packed) -> Packed:
    """Run a task: call its function with the placed value and the shared value, if any, and its own arguments."""
    global _held
    try:
        home, function, arguments = unpack(task)
        _settle(home)
        first = []
        if placed is not None:
            # Unpacked once per process: the next task finds it here.
            if _held[0] != name:
                _held = (name, unpack(placed))
            first.append(_held[1])
        if shared is not None:
            first.append(unpack(shared))
        return pack((function(*first, *arguments), None))
    except InputError as error:
        return pack((None, InputError(str(error))))
    except Exception as error:
        return pack((None, error))


# -- in the process that sends tasks -----------------------------------------------------------------------------

_joined: str | None = None


def _import() -> Any:
    """Import Ray; refuse a release that is too old."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # This will be Ray's own default; until then, Ray warns at every start unless it is set.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    numbers = re.match(r"(\d+)\.(\d+)", ray.__version__)
    if numbers is None or tuple(map(int, numbers.groups())) < _LEAST:
        least = ".".join(map(str, _LEAST))
        raise InputError(f"Ray {ray.__version__} is too old; run: pip install 'ray>={least}'.")
    return ray


def check_address(address: str) -> None:
    """Refuse, within seconds, an address at which no cluster answers; Ray would try for minutes."""
    if address == "auto":
        return
    match = re.fullmatch(r"(\[?[\w.:-]+?\]?):(\d{1,5})", address)
    if match is None:
        raise InputError(
            "address must be HOST:PORT, as 'ray start --head' prints it, or auto for the cluster on this machine, not"
            f" {address!r}."
        )
    host, port = match[1].strip("[]"), int(match[2])
    remedy = "name the address that 'ray start --head' prints, or leave it out to start a cluster here"
    try:
        with socket.create_connection((host, port), timeout=_WAIT) as line:
            # A cluster speaks HTTP/2, whose two ends begin by sending their settings.
            line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            answer = line.recv(9)
    except TimeoutError:
        raise InputError(f"address = {address} does not answer within {_WAIT:g} seconds; {remedy}.") from None
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"Nothing listens at address = {address} ({reason}); {remedy}.") from None
    if len(answer) < 4 or answer[3] != 4:
        raise InputError(f"What listens at address = {address} is not a Ray cluster; {remedy}.")


@contextmanager
def join(address: str | None, cpus: int | None = None) -> Iterator[Cluster]:
    """Join the cluster at an address; without an address, start a temporary cluster on this machine.

    Args:
        address: HOST:PORT or auto; by default, the value of the environment variable RAY_ADDRESS.
        cpus: number of cores of a cluster that is started here; by default, all cores of the machine.
    """
    ray = _import()
    address = address or os.environ.get("RAY_ADDRESS")
    global _joined
    if ray.is_initialized():
        if address != _joined:
            _check_same(ray, address)
        yield RayCluster(ray)
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None or address == "local":
        quiet |= {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    else:
        check_address(address)
        quiet["address"] = address
    try:
        with _without_signals():
            started = ray.init(**quiet)
    except (RuntimeError, ConnectionError, ValueError, OSError) as error:
        ray.shutdown()  # it may have joined before it failed
        raise _not_joined(address, str(error)) from None
    _joined = address
    with ExitStack() as stack:
        if quiet["address"] == "local":
            # If this process is killed, nobody else ends the cluster's processes.
            stack.enter_context(reaped(os.path.basename(started.address_info["session_dir"])))
        try:
            yield RayCluster(ray)
        finally:
            _joined = None
            ray.shutdown()  # a cluster that was running before keeps running


@contextmanager
def _without_signals() -> Iterator[None]:
    """Keep our handler of SIGTERM, which saves a run's state; Ray replaces it by one that exits."""
    usual = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, usual)


def _check_same(ray: Any, address: str | None) -> None:
    there = ray.get_runtime_context().gcs_address
    if address in (None, "auto", "local") or address == there:
        return
    host, _, port = str(address).rpartition(":")
    if port != there.rpartition(":")[2] or host not in ("localhost", "127.0.0.1"):
        raise InputError(f"This program has joined the cluster at {there} already; leave address out, not {address!r}.")


def _not_joined(address: str | None, message: str) -> Exception:
    where = f"the cluster at {address}" if address else "a cluster here"
    versions = re.findall(r"Ray: (\S+)\s+Python: (\S+)", message)
    if len(versions) == 2:
        (ray, python), (our_ray, our_python) = versions
        return InputError(
            f"The cluster at {address} runs Ray {ray} on Python {python}, which does not work with Ray {our_ray} on"
            f" Python {our_python} here; install the same release: pip install 'ray=={ray}'."
        )
    first = (message.strip().splitlines() or ["no reason given"])[0].rstrip(".")
    return MachineError(
        f"Ray cannot join or start {where}: {first}; to add a machine to a cluster, use 'ray start --address=…'."
    )


class RayCluster:
    """What :class:`~fedgauge.simulation.engines.cluster.Cluster` asks for, with Ray's tasks.

    Tasks whose results are no longer needed end when the cluster is left. They are not cancelled: Ray 2.60 ends the
    whole program if a task ends at the very moment at which it is cancelled.
    """

    def __init__(self, ray: Any) -> None:
        self._ray, self._home = ray, _home()
        self._task = ray.remote(_there).options(num_cpus=1, max_retries=_TRIES)

    @property
    def cpus(self) -> int:
        """The number of cores of the machines that are now in the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def place(self, value: Any) -> Any:
        """Put a value where every machine can read it."""
        return self._ray.put(pack(value))

    def submit(self, function: Callable[..., Any], *arguments: Any, placed: Any = None, shared: Any = None) -> Any:
        """Start a task, which begins like the process that submits it."""
        name = placed.hex() if placed is not None else ""
        return self._task.remote(name, placed, shared, pack((self._home, function, arguments)))

    def first(self, pending: Sequence[Any]) -> Any:
        """Wait for whichever of the tasks ends first."""
        return self._ray.wait(pending, num_returns=1)[0][0]

    def result(self, task: Any) -> Any:
        """Return the result of a task; an error that the task raised is raised here."""
        try:
            answer, error = unpack(Packed(*self._ray.get(task)))
        except self._ray.exceptions.RayError as lost:
            cause = getattr(lost, "cause", None) or lost
            reason = (str(cause).strip().splitlines() or [""])[0].rstrip(".")
            raise MachineError(
                f"The cluster could not run a task ({type(cause).__name__}: {reason}); fix it and rerun the same"
                " command to resume."
            ) from None
        if error is not None:
            raise error
        return answer
