"""Confine this process by the Linux kernel, then run a command in its place.

`python confine.py FOLDER NUMPY COMMAND...`, for example `python confine.py /tmp/answer /usr/lib/python3/site-packages
python worker.py`. The command keeps the process and its pipes, but never gets ctypes, which this program needs.

* Landlock (https://docs.kernel.org/userspace-api/landlock.html) allows reading the files of Python except ctypes, of
  NumPy and system libraries, and the files named in COMMAND, and writing in FOLDER. Other processes can be neither
  inspected nor signaled.
* libseccomp allows only the system calls in `ALLOWED`; there are none for sockets, new processes or the system.

This file is run by its path, so it does not import the package.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from errno import ENOSYS, EPERM
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

ALLOWED = """
    read readv pread64 preadv write writev pwrite64 open openat close close_range stat stat64 fstat fstat64 lstat
    lstat64 newfstatat fstatat64 statx statfs statfs64 fstatfs fstatfs64 access faccessat faccessat2 lseek _llseek
    readlink readlinkat getdents getdents64 getcwd chdir fcntl fcntl64 dup dup2 dup3 pipe pipe2 ioctl fadvise64
    fadvise64_64 fsync fdatasync ftruncate ftruncate64 mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2
    umask flock brk mmap mmap2 munmap mprotect mremap madvise msync mincore membarrier futex futex_time64
    futex_waitv set_robust_list get_robust_list rseq set_tid_address sched_yield sched_getaffinity getpid getppid
    gettid getuid geteuid getgid getegid getuid32 geteuid32 getgid32 getegid32 getpgrp getpgid getsid clock_gettime
    clock_gettime64 clock_getres clock_getres_time64 clock_nanosleep clock_nanosleep_time64 nanosleep gettimeofday
    time times getrusage getitimer setitimer alarm rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait
    sigaltstack sigreturn restart_syscall poll ppoll ppoll_time64 select _newselect pselect6 pselect6_time64
    epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 uname sysinfo getrandom getcpu prlimit64 getrlimit
    ugetrlimit setrlimit arch_prctl set_thread_area exit exit_group execve
"""
"""System calls that Python and NumPy need, on all processors that libseccomp knows."""
REFUSED = ("socket", "socketpair", "fork", "vfork", "kill", "ptrace", "process_vm_readv", "process_vm_writev")
"""System calls that fail with PermissionError; all others fail as in a kernel that does not have them."""
CLONE_THREAD = 0x10000
LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64")


def without(folder: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield paths that together contain all of `folder` except the hidden folders."""
    if not any(each.is_relative_to(folder) for each in hidden):
        yield folder
    elif folder not in hidden:
        for child in folder.iterdir():
            yield from without(child, hidden)


def restrict_files(folder: Path, numpy_parent: Path, command: Sequence[str]) -> None:
    """Allow this process to read Python, NumPy, system libraries and the command, and to write in `folder`."""
    from landlockpy import AccessFS, Ruleset, Scope

    python = Path(sysconfig.get_path("stdlib")).resolve()
    roots = {Path(each).resolve() for each in (*LIBRARIES, Path(sys.base_prefix) / "lib") if Path(each).is_dir()}
    hidden = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")]
    hidden += [python / "site-packages", python / "dist-packages", Path("/usr/lib/python3/dist-packages")]
    hidden += [Path(__file__).resolve().parents[2]]
    ctypes = find_spec("_ctypes")
    if ctypes is not None and ctypes.has_location:
        hidden.append(Path(str(ctypes.origin)).resolve())
    run = AccessFS.READ_FILE | AccessFS.EXECUTE
    with Ruleset(scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL) as rules:
        for root in {*roots, python}:
            rules.allow_path(root, AccessFS.READ_DIR)
            for path in without(root, hidden):
                with suppress(FileNotFoundError):  # a link to a missing file
                    rules.allow_path(path, run)
        rules.allow_path(numpy_parent, AccessFS.READ_DIR)
        numpy = [path for name in ("numpy", "numpy.libs") if (path := numpy_parent / name).is_dir()]
        files = [path for path in (Path(sys.prefix, "pyvenv.cfg"), *map(Path, command)) if path.is_file()]
        for path in (*numpy, *files):
            rules.allow_path(path, run)
        rules.allow_path("/proc/self/statm", AccessFS.READ_FILE)
        rules.allow_path(os.devnull, AccessFS.READ_FILE | AccessFS.WRITE_FILE)
        inside = AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.REMOVE_FILE | AccessFS.REMOVE_DIR
        inside |= AccessFS.MAKE_REG | AccessFS.MAKE_DIR | AccessFS.REFER | AccessFS.READ_FILE | AccessFS.READ_DIR
        rules.allow_path(folder, inside)
        rules.restrict()


def system_call_filter() -> Any:
    """Return a filter, not loaded yet, for the system calls in `ALLOWED`, new threads, and signals to this process."""
    import pyseccomp

    calls = pyseccomp.SyscallFilter(pyseccomp.ERRNO(ENOSYS))  # the C library then tries an older call
    native = pyseccomp.system_arch()
    for name in ALLOWED.split():
        if pyseccomp.resolve_syscall(native, name) != -1:
            calls.add_rule(pyseccomp.ALLOW, name)
    for name in REFUSED:
        if pyseccomp.resolve_syscall(native, name) != -1:
            calls.add_rule(pyseccomp.ERRNO(EPERM), name)
    thread = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, CLONE_THREAD)
    calls.add_rule(pyseccomp.ALLOW, "clone", thread)
    calls.add_rule(pyseccomp.ERRNO(EPERM), "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0))
    calls.add_rule(pyseccomp.ALLOW, "tgkill", pyseccomp.Arg(0, pyseccomp.EQ, os.getpid()))  # abort() uses it
    return calls


def main(folder: str, numpy_parent: str, *command: str) -> NoReturn:
    """Confine this process and replace it by the command."""
    calls = system_call_filter()
    restrict_files(Path(folder), Path(numpy_parent), command)
    calls.load()
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
