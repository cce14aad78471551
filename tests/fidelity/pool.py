# Processes of the multiprocessing module that share a queue, a lock and a directory.
import multiprocessing, os


def work(n):
    name = "p%d" % n
    with open(name + ".tmp", "w") as out:
        out.write(str(n))
    os.replace(name + ".tmp", name)
    return n


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(4) as pool:
            assert sum(pool.imap_unordered(work, range(400), chunksize=7)) == 79800
    print(len([name for name in os.listdir(".") if name.startswith("p") and name[1:].isdigit()]))
