# ruff: noqa: PTH100, PTH118, PTH119, PTH120, SIM105, UP031
# mypy: ignore-errors
# Every import here is one at each start of a Python, and some of those are old.
"""Start-up hook of every Python of a command: tells the pod's agent that the process runs, that it
became a rank, and how it ended (agent/ranks.py). Then hands on to the program's own sitecustomize.

It runs in whatever Python the program brings, and tells something from 3.7 on: standard library
only, nothing that a program could notice, and no fault of it reaches the program. Messages are
packets on a Unix socket; a packet of one byte is the exit code.
"""

import os
import sys

RANK_MODULES = ("paddle.distributed", "torch.distributed", "paddle_node.training.step_log")
"""Whoever imports one of these, which `import paddle` does, may be a rank."""
HIGH = 900
"""The socket's number: none that a program closes, and then has for a file of its own."""
ANSWER = 2.0
"""Seconds for the agent to take note of this process, before it may end."""
LONGEST = 300
MOST_PEERS = 1000
MANY = 100
"""Steps after which one that trains alone is no mere try (agent/ranks.py)."""
STACKS = 2
"""SIGRTMAX minus this signal makes a process write where its threads are."""


class Hook:
    """This process's connection to the agent."""

    def __init__(self, place):
        self.place = place
        self.write = os.write
        self.words = ""
        self.peers = set()
        self.saved = False
        self.trains = None
        self.fd = self.connect()

    def connect(self):
        """Returns the socket's number, once the agent knows this process."""
        import _socket
        import fcntl

        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        sock.settimeout(ANSWER)
        sock.connect(("\0" + os.path.basename(self.place)).encode())
        sock.recv(1)
        sock.settimeout(None)
        try:
            fd = fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH)
        except OSError:
            return sock.detach()
        sock.close()
        return fd

    def tell(self, text):
        """Sends a message."""
        try:
            self.write(self.fd, text.encode("utf-8", "replace"))
        except Exception:
            pass

    def join(self):
        """Sees to it that the agent learns how this process ends."""
        import atexit

        atexit.register(self.tell_words)
        try:
            self.tell_exit_code()
        except Exception:
            pass  # Only glibc has on_exit.
        leave, end = os._exit, sys.exit

        def _exit(status):
            try:
                if self.words or fell(last_error()):
                    self.tell_words()
                self.write(self.fd, bytes(bytearray([status & 255])))
            except Exception:
                pass
            leave(status)

        def exit(status=None):
            error = sys.exc_info()[1]
            if isinstance(status, int) and status and not status & 255:
                self.words = "sys.exit(%d), which Linux takes for 0" % status
            elif isinstance(status, str):
                self.words = status
            else:  # It may have handled an exception only to end with a code.
                self.words = describe(error) if status and error is not None else ""
            end(status)

        os._exit, sys.exit = _exit, exit
        os.register_at_fork(after_in_child=self.rejoin)
        sys.meta_path.insert(0, self)
        for name in self.patches.keys() & sys.modules.keys():
            self.apply(name, sys.modules[name])
        if hasattr(sys, "addaudithook"):
            self.tell_saves()

    def tell_exit_code(self):
        """Lets the C library write the exit code to the socket, whoever ends this process: only it
        knows the code of a `raise SystemExit(3)`, and of C's exit().
        """
        import _ctypes  # A third of the time of ctypes.

        class Pointer(_ctypes._SimpleCData):
            _type_ = "P"

        class Function(_ctypes.CFuncPtr):
            _flags_ = 1
            _restype_ = Pointer

        libc = _ctypes.dlopen(None, 2)
        fdopen, setvbuf, on_exit, fputc = (
            _ctypes.dlsym(libc, name) for name in ("fdopen", "setvbuf", "on_exit", "fputc")
        )
        stream = Pointer(Function(fdopen)(self.fd, b"w"))
        if stream:
            Function(setvbuf)(stream, None, 2, Pointer(0))
            Function(on_exit)(Pointer(fputc), stream)

    def rejoin(self):
        """Gives a forked child a connection of its own, under the same number."""
        try:
            self.words, self.peers, self.saved = "", set(), False
            os.close(self.fd)
            fd = self.connect()
            if fd != self.fd:
                os.dup2(fd, self.fd, False)
                os.close(fd)
            self.tell("forked")
        except Exception:
            pass

    def tell_words(self, error=None):
        """Tells with which words this process ends, before its exit code."""
        error = error or last_error()
        if error is not None:
            self.tell(("fell " if fell(error) else "error ") + describe(error))
        elif self.words:
            self.tell("words " + self.words.strip().partition("\n")[0][:LONGEST])

    def tell_saves(self):
        """Tells that this process has opened a file of the job's output to write it."""

        def hear(event, arguments):
            if event == "open" and not self.saved and arguments[2] and arguments[2] & 3:
                try:
                    output = os.path.realpath(os.path.join(self.place, "output"))
                    if os.path.realpath(os.fsdecode(arguments[0])).startswith(output + "/"):
                        self.saved = True
                        self.tell("saves")
                except Exception:
                    pass

        sys.addaudithook(hear)

    def tell_ends(self, module):
        """Lets a child of multiprocessing tell the exception that ends it, which it only prints."""
        start = module.BaseProcess._bootstrap

        def start_and_tell(*args, **more):
            import traceback

            print_exc = traceback.print_exc

            def tell_and_print(*args, **more):
                self.tell_words(sys.exc_info()[1])
                return print_exc(*args, **more)

            traceback.print_exc = tell_and_print
            return start(*args, **more)

        module.BaseProcess._bootstrap = start_and_tell

    def find_spec(self, name, path=None, target=None):
        """Never finds a module; takes note of those that make a rank."""
        if name in RANK_MODULES:
            self.tell("imported")
        elif name in self.patches:
            return self.patch(name, path)
        return None

    def apply(self, name, module):
        try:
            self.patches[name](self, module)
        except Exception:
            pass  # Python 3.7 has no threading.excepthook.

    def patch(self, name, path):
        """Patches a module once it is loaded."""
        try:
            spec = sys.modules["_frozen_importlib_external"].PathFinder.find_spec(name, path)
            load = spec.loader.exec_module
        except Exception:
            return None

        def exec_module(module):
            load(module)
            self.apply(name, module)

        spec.loader.exec_module = exec_module
        return spec

    def tell_threads(self, module):
        """Tells the exception that ends a thread, which Python only prints."""
        print_exception = module.excepthook

        def tell_and_print(args):
            if args.exc_type is not SystemExit:
                kind = "fell " if args.thread is self.trains else "thread "
                self.tell(kind + describe(args.exc_value))
            print_exception(args)

        module.excepthook = tell_and_print

    def tell_peers(self, module):
        """Lets Python's sockets tell to whom they are connected: a look at what is connected may
        come too late.
        """
        kind = module.socket
        connect, accept = kind.connect, kind.accept

        def tell(sock):
            try:
                if sock.family != module.AF_UNIX:
                    peer = "peer %s %s" % (sock.getsockname()[0], sock.getpeername()[0])
                    if peer not in self.peers and len(self.peers) < MOST_PEERS:
                        self.peers.add(peer)
                        self.tell(peer)
            except Exception:
                pass

        def connect_and_tell(sock, address):
            connect(sock, address)
            tell(sock)

        def accept_and_tell(sock):
            other, address = accept(sock)
            tell(other)
            return other, address

        kind.connect, kind.accept = connect_and_tell, accept_and_tell

    def tell_steps(self, module):
        """Tells the first step of an optimizer, and the one from which on it is no mere try."""
        from threading import current_thread

        count = [0]
        if module.__name__.startswith("torch"):
            handles = []

            def stepped(*_):
                count[0] += 1
                self.trains = current_thread()
                if count[0] == MANY:
                    handles.pop().remove()
                if count[0] in (1, MANY):
                    self.tell("step" if count[0] == 1 else "steps")

            handles.append(module.register_optimizer_step_post_hook(stepped))
            return
        kind = module.Optimizer
        apply = kind._apply_optimize

        def counted(*args, **more):
            done = apply(*args, **more)
            count[0] += 1
            self.trains = current_thread()
            # A static program's optimizer is only built here: nobody sees its steps.
            dynamic = count[0] not in (1, MANY) or sys.modules["paddle"].in_dynamic_mode()
            if count[0] == 1:
                self.tell("step" if dynamic else "static")
            elif count[0] == MANY and dynamic:
                self.tell("steps")
            if (count[0] == MANY or not dynamic) and kind._apply_optimize is counted:
                kind._apply_optimize = apply
            return done

        kind._apply_optimize = counted

    patches = {  # noqa: RUF012
        "socket": tell_peers,
        "threading": tell_threads,
        "multiprocessing.process": tell_ends,
        "paddle.optimizer.optimizer": tell_steps,
        "torch.optim.optimizer": tell_steps,
    }


def last_error():
    """Returns the exception that Python, or an extension, printed last."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def fell(error):
    """Whether an exception has ended the program, with whatever code that leaves then: it went
    through the script itself, not only through a function that a library had called.
    """
    trace = getattr(error, "__traceback__", None)
    if trace is None:
        return False
    name, place = trace.tb_frame.f_globals.get("__name__"), trace.tb_frame.f_code.co_name
    return name == "runpy" or (name == "__main__" and place == "<module>")


def describe(error):
    """Returns an exception as its traceback's last line, and where the program raised it."""
    text, place = str(error).strip().partition("\n")[0], ""
    trace = getattr(error, "__traceback__", None)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not place or "/site-packages/" not in file:
            place = " (%s:%s)" % (os.path.basename(file), trace.tb_lineno)
        trace = trace.tb_next
    name = type(error).__name__
    text = "%s: %s" % (name, text) if text else name
    return text[: LONGEST - len(place)] + place


def _begin():
    place = os.environ.get("PADDLE_NODE_WITNESS")
    if not place or sys.version_info < (3, 7):
        return
    hook = Hook(place)
    hook.join()
    try:
        import faulthandler
        import fcntl
        from _signal import SIGRTMAX

        # No file object: before Python 3.10 it may outlive what it needs to be closed.
        file = os.path.join(place, "%d.stacks" % os.getpid())
        low = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, HIGH)
        finally:
            os.close(low)
        faulthandler.register(SIGRTMAX - STACKS, fd, all_threads=True)
    except Exception:
        pass


def _hand_on():
    """Runs the sitecustomize that would have run without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = sys.modules["_frozen_importlib_external"].PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["_frozen_importlib"].module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    _begin()
except Exception:
    pass  # No fault of this hook is the program's.
if sys.version_info >= (3,):  # noqa: UP036 (Python 2 runs it, too)
    _hand_on()
