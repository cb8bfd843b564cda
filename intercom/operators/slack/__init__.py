"""The Slack channel: it shows cards as messages and turns people's actions into decisions."""
