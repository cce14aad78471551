#!/bin/sh
# A policy for a coding agent: it may write here and in the directory for temporary files (kept aside as ever), cannot plant
# anything that git executes, and cannot read keys. What it tries elsewhere fails at once instead of being kept.
#
#   examples/agent.sh my-agent --task "update the dependencies"
#
# Afterwards effigy shows what it did and asks; exit status: the agent's own.
set -u
exec effigy run --optional \
    --write . --write "${TMPDIR:-/tmp}" --write "$HOME/.cache" \
    --protect-git --protect .github --protect .gitlab-ci.yml --protect .vscode \
    --deny-read "$HOME/.ssh" --deny-read "$HOME/.aws" --deny-read "$HOME/.gnupg" --deny-read "$HOME/.netrc" --deny-read "**/.env" \
    -- "$@"
