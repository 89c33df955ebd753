"""A very long message, through the commands."""

import json


def test_a_long_message_is_found_by_its_last_word(run, tmp_path):
    """Nothing at the end of a pasted log is out of reach."""
    text = "filler words of a log " * 15_000 + "quokka"
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps({"session_id": "s", "role": "user", "content": text, "timestamp": 1}))
    run("sessions", "import", str(file))

    found = run("sessions", "search", "quokka")

    assert found.code == 0
    assert "quokka" in found.out
