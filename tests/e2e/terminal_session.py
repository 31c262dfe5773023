#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A person at a terminal: starts a command on a pseudo-terminal and types.

terminal_session.py [EXPECT TYPE]... -- COMMAND...

Each time the output has EXPECT, TYPE is sent (escapes as in Python; "@size ROWS COLUMNS" resizes the terminal, "@signal N" is for the
command). Prints the output, then how many lines have gone on below their ends, "exit code N", and whether the terminal is as it was.
"""
import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time

LIMIT_S = 30 * int(os.environ.get("SLOW", "1"))


def resize(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def act(master, pid, words):
    if words.startswith("@size "):
        resize(master, *map(int, words.split()[1:]))
    elif words.startswith("@signal "):
        os.kill(pid, int(words.split()[1]))
    else:
        os.write(master, words.encode().decode("unicode_escape").encode())


def start(command, master, slave):
    pid = os.fork()
    if pid:
        return pid
    os.close(master)
    login(slave)
    os.environ.update(TERM="xterm", PS1="prompt> ")
    os.execvp(command[0], command)


def login(slave):
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(slave, fd)


def main():
    end = sys.argv.index("--")
    script, command = list(zip(sys.argv[1:end:2], sys.argv[2:end:2])), sys.argv[end + 1:]
    master, slave = pty.openpty()
    resize(master, 30, 100)
    before = termios.tcgetattr(slave)
    pid = start(command, master, slave)
    text, seen, status, until = "", 0, None, time.monotonic() + LIMIT_S
    while True:
        if script and script[0][0] in text[seen:]:
            seen = text.index(script[0][0], seen) + len(script[0][0])
            act(master, pid, script.pop(0)[1])
        if select.select([master], [], [], 0.1)[0]:
            text += os.read(master, 65536).decode(errors="replace")
        elif status is not None or time.monotonic() > until:
            break
        if status is None:
            ended, code = os.waitpid(pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if ended else None
    print(text.replace("\r", ""))
    print("lines without a return:", text.count("\n") - text.count("\r\n"))
    print("exit code", status)
    print("terminal", "restored" if termios.tcgetattr(slave) == before else "changed")


main()
