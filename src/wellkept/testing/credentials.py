"""Made-up credentials: the documented forms of `security/secrets.txt`, filled with random characters."""

import random
import re
import string
import uuid

_KINDS = {
    "": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "u": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
    "d": string.digits,
    "A": string.ascii_uppercase + string.digits,
    "a": string.ascii_lowercase + string.digits,
    "l": string.ascii_lowercase,
    "B": string.ascii_uppercase + "234567",
    "K": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
}
_BODY = re.compile(r"<(g|[hHubdAalBK]?(\d+))>")


def make_credential(form: str, dice: random.Random) -> str:
    """Return `form` with each `<kind and length>` replaced by random characters of that kind."""

    def fill(body: re.Match[str]) -> str:
        if body[1] == "g":
            return str(uuid.UUID(int=dice.getrandbits(128), version=4))
        kind = body[1].removesuffix(body[2])
        return "".join(dice.choices(_KINDS[kind], k=int(body[2])))

    return _BODY.sub(fill, form)
