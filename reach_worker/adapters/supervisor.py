"""Stands between an agent and a program that it runs, so that nothing of the program outlives either of them.

Started as a script of its own, with the standard library alone:
``supervisor.py CONTROL STATUS GRACE_S FOLDER PROGRAM …``.
``CONTROL`` is a pipe that nobody writes to. When its other end is closed, because the agent wants that or because the
agent has died, whatever way, the program is told to end (SIGTERM), and killed when it has not done so after ``GRACE_S``.
Whatever the program has started ends with it, also what runs on after the program itself. Then ``FOLDER`` is deleted,
where one is given, and one line goes to the pipe ``STATUS``: ``exit N``, ``signal N``, or ``error ERRNO`` if it could
not be started.

What belongs to the program: its process group, and on Linux every process that descends from it, in whatever session,
because the kernel hands orphans to this process. Should this process itself be killed, the kernel kills the program
(Linux only), and not its children.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform == "linux"
LOOK_S = 0.05
"""While something is to end, it is looked at so often."""


def main(control: int, status: int, grace_s: float, folder: str, program: list[str]) -> None:
    """Run the program to its end, and end what is left of it."""
    for pipe in (control, status):
        os.set_inheritable(pipe, False)  # noqa: FBT003 - the library's signature
    woken = wake_on_signals()
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    pid, error = start(program)
    said = f"error {error}" if error else Watch(pid, grace_s).end(control, woken)
    if folder:
        import shutil  # noqa: PLC0415 - takes longer to import than most programs need to start

        shutil.rmtree(folder, ignore_errors=True)
    with suppress(BrokenPipeError):
        os.write(status, f"{said}\n".encode())


def prctl(option: int, value: int) -> None:
    """The system call of that name."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def wake_on_signals() -> int:
    """A pipe that becomes readable with each signal: a child has ended, or somebody wants this process to end."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reading


def start(program: list[str]) -> tuple[int, int]:
    """Start it in a session of its own; its process id, and 0 or the error's number."""
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        become(program, parent, writing)
    os.close(writing)
    error = os.read(reading, 16)
    os.close(reading)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # they are the program's alone, so that their end is its end
        os.dup2(nothing, standard)
    return pid, int(error or 0)


def become(program: list[str], parent: int, failed: int) -> None:
    """In the new process: turn into the program, or tell why not."""
    try:
        os.setsid()
        if LINUX:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and that would be inherited
            signal.signal(number, signal.SIG_DFL)
        if os.getppid() == parent:
            os.execvp(program[0], program)  # noqa: S606 - without a shell, on purpose
    except OSError as error:
        os.write(failed, str(error.errno).encode())
    finally:
        os._exit(127)


class Watch:
    """A program that runs, and what it has started."""

    def __init__(self, pid: int, grace_s: float) -> None:
        self.pid = pid
        self.grace_s = grace_s
        self.told: set[int] = set()
        self.kill_at: float | None = None
        self.gone = False

    def end(self, control: int, woken: int) -> str:
        """Wait until all of it has ended; how the program did."""
        said = ""
        while True:
            said = said or self.ended()
            if said and self.kill_at is None:
                self.begin_to_end()
            if self.kill_at is not None:
                self.press()
                if said and self.alone():
                    return said
            wanted = [woken] if self.kill_at is not None else [woken, control]
            ready = select.select(wanted, [], [], None if self.kill_at is None else LOOK_S)[0]
            if control in ready or (woken in ready and self.asked(woken)):
                self.begin_to_end()

    def asked(self, woken: int) -> bool:
        """Whether one of the signals that came wants this process to end."""
        with suppress(BlockingIOError):
            return any(number != signal.SIGCHLD for number in os.read(woken, 4096))
        return False

    def ended(self) -> str:
        """How the program ended, empty while it runs. On Linux it is not reaped: its number stays its own."""
        options = os.WEXITED | os.WNOHANG | (os.WNOWAIT if LINUX else 0)
        found = os.waitid(os.P_PID, self.pid, options)
        if found is None:
            return ""
        return f"{'exit' if found.si_code == os.CLD_EXITED else 'signal'} {found.si_status}"

    def begin_to_end(self) -> None:
        """From now on everything is to end."""
        if self.kill_at is None:
            self.kill_at = time.monotonic() + self.grace_s  # noqa: TID251 - a script of its own, which has no clock

    def press(self) -> None:
        """Tell who has not been told; kill who was told long enough ago."""
        late = self.kill_at is not None and time.monotonic() >= self.kill_at  # noqa: TID251 - as above
        if late or self.pid not in self.told:
            self.told.add(self.pid)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL if late else signal.SIGTERM)
        for child in self.others():
            if late or child not in self.told:
                self.told.add(child)
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL if late else signal.SIGTERM)

    def alone(self) -> bool:
        """Nothing is left but the program, which has ended."""
        if LINUX:
            return not self.others()
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return True
        return False

    def others(self) -> list[int]:
        """What the program has started and left to this process, the dead ones reaped. None of these numbers is stale."""
        found = children() if LINUX else []
        return [child for child in found if child != self.pid and os.waitpid(child, os.WNOHANG) == (0, 0)]


def children() -> list[int]:
    """This process's children, from the kernel's own list or, where it keeps none, by looking at all processes."""
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{me}/children").read_text().split()]
    except FileNotFoundError:
        return [
            int(each.name)
            for each in Path("/proc").iterdir()
            if each.name.isdigit() and parent_of(each) == me
        ]


def parent_of(process: Path) -> int:
    """A process's parent, 0 if it is gone."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5:])
