#!/bin/sh
# Lets a program loose and keeps what it did only if it stayed below the working directory: for agents and installers that have
# nothing to do elsewhere.
#
#   examples/only-here.sh npm install
#
# Exit status: the program's own; 1 when it succeeded but changed something elsewhere, which is then kept aside for review.
set -u
name="only-here-$$"
effigy run -q -n -s "$name" -- "$@" || exit
elsewhere=$(effigy summary "$name" --json | python3 -c '
import json, os, sys
here = os.getcwd() + "/"
for line in sys.stdin:
    path = json.loads(line)["path"]
    if not isinstance(path, str) or not (path + "/").startswith(here):
        print(path)
')
if [ -n "$elsewhere" ]; then
    echo "it also changed:" "$elsewhere" >&2
    echo "review it: effigy log $name; effigy diff $name; then effigy commit $name or effigy discard $name" >&2
    exit 1
fi
effigy commit -q -y "$name"
