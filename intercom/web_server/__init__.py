"""The HTTP/1.1 server for ASGI applications, on h11: it knows neither agents nor operators."""
