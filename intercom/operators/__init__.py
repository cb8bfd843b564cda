"""The operators' side: the card router and the channels. Decisions go to `sessions/operator_service`."""
