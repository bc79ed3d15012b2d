"""The tournament host: configuration, agents, match play, runtimes, database and command line."""
