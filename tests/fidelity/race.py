# Eight processes of four threads that fight over a few names. What each call answers is left to chance.
#     race.py SEED ROUNDS
import ctypes, os, random, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
FILES = [place + name for place in ("", "one/", "two/") for name in ("a", "b", "c")]
DIRECTORIES = ["one", "two", "three", "one/four"]
ANY = FILES + DIRECTORIES


def open_some(some, flags):
    fd = os.open(some.choice(FILES), flags, some.choice([0o600, 0o640, 0o644, 0o666]))
    if flags & os.O_ACCMODE:
        os.write(fd, b"x")
    os.close(fd)


def exchange(one, other):
    if libc.renameat2(-100, one.encode(), -100, other.encode(), 2) != 0:
        raise OSError


CALLS = [
    lambda some: open_some(some, os.O_CREAT | os.O_WRONLY),
    lambda some: open_some(some, os.O_CREAT | os.O_EXCL | os.O_WRONLY),
    lambda some: open_some(some, os.O_CREAT | os.O_EXCL | os.O_WRONLY),
    lambda some: os.unlink(some.choice(ANY)),
    lambda some: os.unlink(some.choice(FILES)),
    lambda some: os.rename(some.choice(ANY), some.choice(ANY)),
    lambda some: os.rename(some.choice(FILES), some.choice(FILES)),
    lambda some: exchange(some.choice(ANY), some.choice(ANY)),
    lambda some: os.mkdir(some.choice(DIRECTORIES), some.choice([0o700, 0o750, 0o755])),
    lambda some: os.mkdir(some.choice(ANY), 0o777),
    lambda some: os.rmdir(some.choice(ANY)),
    lambda some: os.link(some.choice(FILES), some.choice(FILES)),
    lambda some: os.symlink(some.choice(ANY), some.choice(ANY)),
    lambda some: os.chmod(some.choice(FILES), some.choice([0o701, 0o702, 0o704, 0o710, 0o720])),
    lambda some: os.truncate(some.choice(FILES), some.choice([0, 10])),
]


def thread(seed, rounds):
    some = random.Random(seed)
    for _ in range(rounds):
        try:
            some.choice(CALLS)(some)
        except OSError:
            pass


def main():
    seed, rounds = int(sys.argv[1]), int(sys.argv[2])
    os.umask(0)
    for process in range(8):
        if os.fork() == 0:
            threads = [threading.Thread(target=thread, args=("%d %d %d" % (seed, process, number), rounds)) for number in range(4)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            os._exit(0)
    while True:
        try:
            if os.wait()[1] != 0:
                sys.exit(1)
        except ChildProcessError:
            break


main()
