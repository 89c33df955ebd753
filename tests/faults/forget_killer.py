"""Forgets words in a home and kills its own process at the n-th write; without a number, counts the writes."""

import os
import signal
import sys
from contextlib import contextmanager

from wellkept.app import open_app
from wellkept.forgetting import forget
from wellkept.storage.sqlite import Database

WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
count, kill_at = 0, 0


def write_happens():
    global count
    count += 1
    if count == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


def on_audit(event, arguments):
    if event in WRITES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE):
        write_happens()


writing = Database.writing


@contextmanager
def counted_writing(self):
    write_happens()
    with writing(self) as connection:
        yield connection
        write_happens()
    write_happens()


def main():
    global kill_at
    home, words, kill_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
    app = open_app(home)
    caller = app.caller()
    proposal = forget.plan_forget_words(caller, words)
    Database.writing = counted_writing
    sys.addaudithook(on_audit)
    outcome = forget.forget(caller, proposal)
    app.close()
    sys.stdout.write(f"{count} {outcome.is_complete}\n")


if __name__ == "__main__":
    main()
