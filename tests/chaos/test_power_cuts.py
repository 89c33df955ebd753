"""Power cuts: what a command acknowledged is on the disk, and what it had not finished is completed or as it was."""

import re

import pytest
from chaos_operations import OPERATIONS
from power_cut import Disk, read_log

DERIVED = re.compile(r"(-shm|\.lock|-wal)$|/?\.unfinished")


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_was_acknowledged_is_synced(laboratory, name, tmp_path):
    operation = OPERATIONS[name]
    laboratory.survey(operation)
    laboratory.put_back()
    disk = Disk(laboratory.home)
    answer = laboratory.perform(operation, log=tmp_path / "log")
    assert answer.code == 0
    changes = read_log(tmp_path / "log")
    unsafe = [one for one in disk.find_unsafe(changes) if not DERIVED.search(one)]
    print(len(changes))
    assert unsafe == []
