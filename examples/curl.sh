#!/bin/sh
# One step of a trainer with curl alone: lease a task, send two answers (without quotes).
# sh examples/curl.sh http://127.0.0.1:8000 gsm8k '#### 4' '#### 5'
# You will see the task as JSON, and the rewards of both answers: `"rewards":[0.0,0.0]` where neither is right.
set -eu
gateway=$1 environment=$2 first=$3 second=$4

ask() { # a path and a body; a repeat is safe at any time
  curl -sSf --retry 5 --retry-connrefused --user ":${ATROPOS_ENVS_API_KEY:-}" \
    -H 'Content-Type: application/json' -d "$2" "$gateway/envs/$environment/$1"
}

batch=$(ask next-batch '{"run": "curl", "batch_size": 1}')
printf '%s\n' "$batch"
task=$(printf %s "$batch" | grep -o 'task_[0-9a-f]\{32\}' | head -n 1)
lease=$(printf %s "$batch" | grep -o 'lease_[0-9a-f]\{32\}' | head -n 1)
ask score '{"run": "curl", "groups": [{"task_id": "'"$task"'", "lease_id": "'"$lease"'",
  "completions": [{"text": "'"$first"'"}, {"text": "'"$second"'"}]}]}' | grep -o '"rewards":\[[^]]*\]'
