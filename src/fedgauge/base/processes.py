"""Processes that run functions for this one, and that end when it ends, however it ends.

Unlike those of :mod:`multiprocessing`, they do not run the user's script again: functions and arguments are sent by
:mod:`cloudpickle`, and what the script itself defines travels by value. So a script that starts processes needs no
``if __name__ == "__main__"``, and neither does a notebook.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.spawn import get_executable
from typing import Any, Literal, NamedTuple

from fedgauge.base.errors import InputError
from fedgauge.base.interrupts import ENDING
from fedgauge.base.threads import keep_freed_memory

_OFTEN = 0.2
"""Seconds between two looks at whether the parent is still there, and between two reports of progress."""
# The search path of modules is sent, as the parent may have added directories to its own.
_BEGIN = """
import sys
from multiprocessing.connection import Connection
line = Connection({line})
try:
    sys.path[:] = line.recv()
except EOFError:
    sys.exit(1)
from fedgauge.base.processes import _serve
_serve(line, {parent})
"""
_child = False


def is_child() -> bool:
    """Whether this process was started by :class:`Child`."""
    return _child


def end_with_parent(parent: int) -> None:
    """Let this process end soon after the one with this number, its parent.

    Linux could send a signal then, but it would send it when the thread that started this process ends.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_OFTEN)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Message(NamedTuple):
    """What a child sends: the steps that a job has taken, its result, or the error that it raised."""

    kind: Literal["steps", "result", "error"]
    content: Any


class Child:
    """A process that runs one function after another, and the line to it.

    It is made while signals are held back: one that comes before the child can handle it waits until it can.
    """

    def __init__(self) -> None:
        self.line, theirs = Pipe()
        code = _BEGIN.format(line=theirs.fileno(), parent=os.getpid())
        # As multiprocessing does: the same warnings and options of the interpreter as here.
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        command = [os.fsdecode(get_executable()), *flags, "-c", code]
        try:
            with theirs:
                self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        except BaseException:
            self.line.close()
            raise
        with suppress(OSError):  # it has ended already, which the first message will find
            self.line.send(sys.path)

    def begin(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Let it run a function; its messages arrive on the line."""
        import cloudpickle

        content = cloudpickle.dumps((function, arguments))
        with suppress(OSError):  # a child that has ended is noticed where its answer is awaited
            self.line.send_bytes(content)

    def receive(self) -> Message:
        """Wait for its next message; an EOFError or OSError says that it has ended."""
        return Message(*pickle.loads(self.line.recv_bytes()))

    def interrupt(self) -> None:
        """Ask it to save its state and to end."""
        self._process.send_signal(signal.SIGINT)
        self.line.close()

    def end(self, patience: float) -> int:
        """Wait until it has ended, kill it after ``patience`` seconds, and return its status."""
        self.line.close()
        try:
            return self._process.wait(max(patience, 0.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


# -- in the child ------------------------------------------------------------------------------------------------


class _Interruption:
    """Ctrl-C interrupts only a running job, and only once, so that it can save its state.

    A process that stopped in the middle of a message would leave its parent waiting for ever.
    """

    came = running = False

    def __call__(self, *_: Any) -> None:
        ends, self.came = self.running and not self.came, True
        if ends:
            raise KeyboardInterrupt


_interruption = _Interruption()


class _Progress:
    """Tells the parent how many steps have been taken, a few times a second."""

    def __init__(self, line: Connection) -> None:
        self._line, self._steps, self._last = line, 0, time.monotonic()

    def __call__(self, steps: int) -> None:
        self._steps += steps
        if time.monotonic() - self._last >= _OFTEN:
            self.send()

    def send(self) -> None:
        if self._steps:
            _send(self._line, "steps", self._steps)
        self._steps, self._last = 0, time.monotonic()


_progress: _Progress | None = None


def progress(steps: int) -> None:
    """Tell the parent, from inside a function that a child runs, that it has taken this many further steps."""
    if _progress is not None:
        _progress(steps)


def _send(line: Connection, kind: str, content: Any) -> None:
    import cloudpickle

    packed = cloudpickle.dumps((kind, content))
    # The parent may have closed its end, as it does when it ends or needs no answer.
    with suppress(BrokenPipeError, ConnectionResetError):
        line.send_bytes(packed)


def _portable(error: BaseException) -> BaseException:
    """An error that can be sent: with the trace as a note, and without what cannot be pickled."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()  # without the trace that an InterruptedRunError carries
    if isinstance(error, InputError):
        return InputError(str(error))  # subclasses with further arguments cannot be sent
    trace = "".join(traceback.format_exception(error)).rstrip()
    try:
        import cloudpickle

        copy: BaseException = pickle.loads(cloudpickle.dumps(error))
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note(f"In the process that ran it:\n{trace}")
    return copy


def _run(content: bytes) -> tuple[str, Any]:
    try:
        _interruption.running = True
        if _interruption.came:
            raise KeyboardInterrupt
        function, arguments = pickle.loads(content)
        return "result", function(*arguments)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return "error", _portable(error)
    finally:
        _interruption.running = False


def _serve(line: Connection, parent: int) -> None:
    """The main loop of a child: run functions until the other end closes."""
    global _child, _progress
    _child, _progress = True, _Progress(line)
    end_with_parent(parent)
    keep_freed_memory()
    # A scheduler sends SIGTERM to all processes of a job, and a closing terminal SIGHUP.
    for number in ENDING:
        signal.signal(number, _interruption)
    # The process started with these signals blocked; one that came in the meantime takes effect now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    with suppress(EOFError, ConnectionResetError):
        while True:
            kind, content = _run(line.recv_bytes())
            _progress.send()
            try:
                _send(line, kind, content)
            except Exception as error:  # a result that cannot be pickled
                _send(line, "error", _portable(error))
    # Threads that still compute, and whatever would be cleaned up at the end, must not keep it alive.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
