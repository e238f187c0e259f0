package shard

const killDirEnv = "LIANA_SHARD_KILL_DIR"

func serveUntilKilled(string) {}
