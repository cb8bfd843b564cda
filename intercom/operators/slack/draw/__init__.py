"""Drawing: what Slack shows of cards, sessions, notices and files. Pure, and valid for any input."""
