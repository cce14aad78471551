# Threads that write files and rename them, as the Go program does.
import os, threading


def work(worker):
    for n in range(200):
        name = "f%d.%d" % (worker, n)
        with open(name + ".tmp", "w") as out:
            out.write(name)
        os.rename(name + ".tmp", name)


threads = [threading.Thread(target=work, args=(worker,)) for worker in range(32)]
for each in threads:
    each.start()
for each in threads:
    each.join()
