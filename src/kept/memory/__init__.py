"""Tier 1: two small pages of durable facts for each user."""
