"""Dispatch: pick the command, import only that command's file, turn errors into one line.

`maar --help` and `maar --version` import neither torch nor tyro.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from maar import __version__
from maar.cli.interrupt import KEPT, catch_signals, exit_code, word
from maar.core.errors import MaarError, UsageError, nearest
from maar.core.lifeline import follow_starter
from maar.core.process import prepare

# command -> (module with `main(argv) -> int`, what it does)
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("maar.cli.train", "train a network from a recipe or a TOML file; resume a run"),
    "tune": ("maar.cli.tune", "search knobs of a recipe on validation images"),
    "certify": ("maar.cli.certify", "prove or break each test image of a trained network"),
    "check": ("maar.cli.check", "check certificates by a program that trusts nothing of maar"),
    "audit": ("maar.cli.audit", "check a certification again, by other code than made it"),
    "radius": ("maar.cli.radius", "find up to which eps each test image is proved"),
    "evaluate": ("maar.cli.evaluate", "measure accuracy and latent robustness of a network"),
    "verify": ("maar.cli.verify", "decide a VNNLIB property of an ONNX network"),
    "export": ("maar.cli.export", "write a network as ONNX, and images as VNNLIB properties"),
    "report": ("maar.cli.report", "show runs and certifications as a page, tables and figures"),
    "reproduce": ("maar.cli.reproduce", "run a table or figure of the paper, and compare"),
    "compare": ("maar.cli.compare", "tell which images one run certifies and another does not"),
    "runs": ("maar.cli.runs", "list the runs below a folder"),
    "data": ("maar.cli.data", "list, fetch, verify and describe data sets"),
    "networks": ("maar.cli.networks", "list the networks with their layers, parameters and ReLUs"),
    "zoo": ("maar.cli.zoo", "list the trained networks that come with maar"),
    "methods": ("maar.cli.methods", "list the training methods with their knobs"),
    "config": ("maar.cli.config", "print the whole effective configuration as TOML"),
    "doctor": ("maar.cli.doctor", "tell what this machine has and what is missing"),
}

# What a path or a disk can have against being written: no fault of the program.
OF_THE_DISK = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EIO, errno.EBUSY, errno.ESTALE),
)
# What these do is in files: a reader of their output who leaves has not seen the end of it.
# With one of the flags they do nothing.
WORK = ("train", "tune", "certify", "audit", "radius", "evaluate", "verify", "reproduce")
LOOKS = {"-h", "--help", "--list", "--dry-run"}


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items())
    return (
        "maar: neural networks whose robustness is proved, not hoped for\n\n"
        "usage: maar COMMAND [OPTIONS]\n\n"
        f"commands:\n{rows}\n\n"
        "options:\n"
        "  -h, --help     show this text; `maar COMMAND --help` shows a command's options\n"
        "  -V, --version  show the version\n"
    )


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0 if args else 2
    if args[0] in ("-V", "--version"):
        print(f"maar {__version__}")
        return 0
    command, *rest = args
    if command not in COMMANDS:
        listed = ", ".join(COMMANDS)
        raise UsageError(f"unknown command {command!r}{nearest(command, COMMANDS)} ({listed})")
    return import_module(COMMANDS[command][0]).main(rest)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 done, 1 failure, 2 usage, 130 interrupted, 143 terminated.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    code = None
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # here, where a reader that has left or a full disk is still handled
        return code
    except MaarError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail(f"{word()}; {KEPT}", exit_code())
    except BrokenPipeError:
        # `maar runs | head`: the reader left; point stdout elsewhere so that exit does not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code is None and words and words[0] in WORK and not set(words) & LOOKS:
            return _fail("stopped, as nobody reads the output; what was finished is kept", 1)
        return code or 0
    except OSError as error:
        if error.errno in OF_THE_DISK:
            where = f" ({error.filename})" if error.filename else ""
            return _fail(f"{error.strerror}{where}", 1)
        raise


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # stdout may be what failed
        sys.stdout.flush()
    print(f"maar: error: {message}", file=sys.stderr)
    return code


def entry() -> None:
    """The console script."""
    catch_signals()
    follow_starter()
    prepare()
    sys.exit(main())
