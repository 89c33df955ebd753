"""The scripted model, under the name that tests import."""

from kept.llm.scripted import Says, Script, ScriptedModel, Step, call

__all__ = ["Says", "Script", "ScriptedModel", "Step", "call"]
