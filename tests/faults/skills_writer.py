"""A process that patches one skill again and again, and says which change was acknowledged."""

import sys
from pathlib import Path

from wellkept.core.tools import ToolContext
from wellkept.skills.library import SkillLibrary
from wellkept.skills.settings import SkillSettings
from wellkept.skills.tool import SkillTools

if __name__ == "__main__":
    home, mark, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    manage = SkillTools(SkillLibrary(home, settings=SkillSettings(bundled=False))).tools()[2]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for turn in range(rounds):
        arguments = {"action": "patch", "name": "shared", "old_string": "END", "new_string": f"{mark}-{turn}\nEND"}
        if manage.call(arguments, ToolContext(origin="agent"))["success"]:
            sys.stdout.write(f"{mark}-{turn}\n")
            sys.stdout.flush()
