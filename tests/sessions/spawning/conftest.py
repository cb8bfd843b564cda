from tests.sessions.spawning.spawning_server import home as home
