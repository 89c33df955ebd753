"""Endpoints that speak the APIs of OpenAI and Anthropic, so that their clients can talk to the agent."""
