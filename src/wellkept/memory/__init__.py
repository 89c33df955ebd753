"""Tier 1: small pages of durable facts for each user."""
