from tests.sessions.spawning.yard import yard as yard
