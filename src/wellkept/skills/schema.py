"""The schemas of the skill tools, which servers list without loading the tier."""

from wellkept.core.tools import ToolSchema, read_schema


def skill_schemas() -> tuple[ToolSchema, ...]:
    """Return the schemas of the skill tools, in the order in which models see them."""
    names = ("skills_list", "skill_view", "skill_manage")
    return tuple(read_schema(name, "skills", "wellkept.skills", "texts", f"{name}.md") for name in names)
