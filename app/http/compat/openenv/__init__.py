"""Every environment as a server of OpenEnv's, for its generic client and whoever uses it."""
