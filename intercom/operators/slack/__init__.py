"""Slack as a channel: cards become messages, and what people do there becomes verdicts."""
