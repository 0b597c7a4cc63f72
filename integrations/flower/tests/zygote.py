"""A process that has Flower, torch and fedgauge imported, and forks Flower's commands on request.

Every message to a SuperNode starts a process, whose imports take four seconds of a core: a test of twenty rounds on
three nodes would take minutes of them. Forked from here, a SuperLink, a SuperNode, a SuperExec and each app's process
are processes of their own that run Flower's released main functions, without importing everything once more. Two
numbers of the release are changed: a SuperNode that has nothing to do looks for messages every 0.1 s, not every 3 s,
and a tensor that is still on its way is asked for again after 0.1 s, not after 1 s.

Requests come as lines of JSON: ``{"argv": [...], "log": path, "home": path}``; the answer is the process's id.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any, NoReturn


def mains() -> dict[str, Any]:
    """Flower's commands, and what their processes will import."""
    import flwr.supercore.constant

    flwr.supercore.constant.PULL_INITIAL_BACKOFF = 0.1  # type: ignore[assignment]  # before others take it from there
    import flwr.cli.app
    from flwr.supercore.cli import flower_superexec
    from flwr.superlink.cli import flower_superlink, flwr_serverapp
    from flwr.supernode.cli import flower_supernode, flwr_clientapp

    for name in ("client", "gauge", "live", "mod", "server"):
        importlib.import_module(f"fedgauge_flower.{name}")
    importlib.import_module("torch._dynamo")  # torch's optimisers import it when the first of them is made
    return {
        "flower-superlink": flower_superlink,
        "flower-supernode": flower_supernode,
        "flower-superexec": flower_superexec,
        "flwr-clientapp": flwr_clientapp,
        "flwr-serverapp": flwr_serverapp,
        "flwr": flwr.cli.app.app,
    }


MAINS: dict[str, Any] = {}


def fork(argv: list[str], log: str | None = None, home: str | None = None) -> int:
    """Run one of Flower's commands in a process of its own."""
    pid = os.fork()
    if pid == 0:
        _become(argv, log, home)
    return pid


def _become(argv: list[str], log: str | None, home: str | None) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # None outlives the process that forked it, not even where the tests are killed (PR_SET_PDEATHSIG).
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if home is not None:
            os.environ["FLWR_HOME"] = home
            os.chdir(home)
        if log is not None:
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(file, 1)
            os.dup2(file, 2)
        sys.argv = argv
        MAINS[argv[0]]()
        status = 0
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _launch(self: Any, spec: Any) -> Any:
    """As released, with a fork for the new process."""
    from flwr.supercore.superexec.executor.types import LaunchResult

    argv = [spec.task_type.value, "--runtime-api-address", spec.runtime_api_address, "--token", spec.token]
    argv += ["--insecure"] if spec.insecure else ["--root-certificates", spec.root_certificates_path]
    if spec.parent_pid is not None:
        argv += ["--parent-pid", str(spec.parent_pid)]
    fork(argv)
    return LaunchResult.accepted()


def main() -> None:
    MAINS.update(mains())
    gc.freeze()  # a collection in a forked process would copy the memory of everything that is imported here
    import flwr.supernode.start_client_internal as supernode
    from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor

    SubprocessExecutor.launch = _launch  # type: ignore[method-assign]
    soon = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 0.1)))
    setattr(supernode, "time", soon)  # noqa: B010 - it imports the module, and does not offer it
    # A process that ends is not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"pid": fork(request["argv"], request["log"], request["home"])}), flush=True)


if __name__ == "__main__":
    main()
