"""Runs a command on a new terminal and talks to it.

drive.py STEPS CMD ARG...: STEPS is a JSON list of ["expect", REGEX], ["send", TEXT], ["size", ROWS, COLUMNS] and ["rest"] (read until the
command ends). The terminal is the controlling one of a new session. What the command wrote goes to standard output, the exit status is
the command's, 99 when an expected text did not come.
"""
import fcntl, json, os, pty, re, select, signal, struct, sys, termios, time

steps = json.loads(sys.argv[1])
pid, master = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])

seen, searched = b"", 0


def read(seconds):
    global seen
    if not select.select([master], [], [], seconds)[0]:
        return True
    try:
        data = os.read(master, 65536)
    except OSError:
        data = b""
    seen += data
    return bool(data)


def size(rows, columns):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def give_up(why):
    os.kill(pid, signal.SIGKILL)
    sys.stdout.buffer.write(seen)
    sys.stderr.write(why + "\n")
    sys.exit(99)


size(24, 80)
for step in steps:
    if step[0] == "expect":
        deadline = time.monotonic() + 30
        while True:
            found = re.search(step[1].encode(), seen[searched:])
            if found:
                searched += found.end()
                break
            if time.monotonic() > deadline or not read(0.2):
                give_up("no " + step[1])
    elif step[0] == "send":
        os.write(master, step[1].encode())
    elif step[0] == "size":
        size(step[1], step[2])
deadline = time.monotonic() + 30
while read(0.2):
    if time.monotonic() > deadline:
        give_up("it does not end")
sys.stdout.buffer.write(seen)
sys.stdout.buffer.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
