"""This machine: where files live, locks, local sockets and the processes behind them."""
