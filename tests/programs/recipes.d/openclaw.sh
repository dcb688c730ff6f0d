#!/bin/bash
# bash openclaw.sh INSTALL_FOLDER RESULT_FOLDER     sessions of OpenClaw's embedded agent (npm openclaw), Node.js >= 24.16
# A call of a tool that does not exist is not kept by it, though its result is: it is not asked for here.
VERSION=${VERSION:-2026.9.6}
. "$(dirname "$0")/lib.sh"
node24
[ -x "$W/n/node_modules/.bin/openclaw" ] || npm install --silent --no-audit --no-fund --prefix "$W/n" "openclaw@$VERSION"
export PATH="$W/n/node_modules/.bin:$PATH" OPENCLAW_NO_ONBOARD=1
cat > "$W/script.json" <<'J'
{"#tools": [[["read", {"path": "/home/ada/garden/notes.txt"}], ["exec", {"command": "wc -l /home/ada/garden/notes.txt"}]],
            [["edit", {"path": "/home/ada/garden/notes.txt", "edits": [{"oldText": "pears: 5", "newText": "pears: 6"}]}]],
            [["read", {"path": "/home/ada/garden/missing.txt"}]]],
 "#picture": [[["read", {"path": "/home/ada/garden/dot.png"}]]]}
J
model "$W/script.json"
dot dot.png
mkdir -p ~/.openclaw
cat > ~/.openclaw/openclaw.json <<J
{"models": {"mode": "merge", "providers": {"fake": {"baseUrl": "http://127.0.0.1:$PORT/v1", "apiKey": "sk-fake", "api": "openai-completions",
  "models": [$(for n in fake-large fake-small; do [ $n = fake-small ] && echo ,; echo "{\"id\": \"$n\", \"name\": \"$n\", \"reasoning\": true, \"input\": [\"text\", \"image\"], \"contextWindow\": 200000, \"maxTokens\": 8192, \"cost\": {\"input\": 0, \"output\": 0, \"cacheRead\": 0, \"cacheWrite\": 0}}"; done)]}}},
 "agents": {"defaults": {"workspace": "/home/ada/garden", "skipBootstrap": true, "model": {"primary": "fake/fake-large"}}}}
J
C="timeout -k 5 -s INT 75 openclaw agent --local"
say short; $C --session-id short --message '#short What is in the notes?' </dev/null 2>&1 | tail -8
say tools; $C --session-id tools --message '#tools Read the notes, count, fix the pears.' </dev/null 2>&1 | tail -5
say resumed; $C --session-id tools --message '#short And now?' </dev/null 2>&1 | tail -5
say 'second model'; $C --session-id tools --model fake/fake-small --message '#short And with another model?' </dev/null 2>&1 | tail -5
say 'a picture that a tool reads'; $C --session-id picture --message '#picture Look at the dot.' </dev/null 2>&1 | tail -5
say 'ctrl-c amid an answer'; killed INT 5 openclaw agent --local --session-id stopped --message '#slow Tell a story.'
say 'killed amid an answer'; killed KILL 5 openclaw agent --local --session-id killed --message '#slow Tell another story.'
say 'resumed after a kill'
for _ in 1 2 3 4 5; do  # the killed one still owns the gateway's state for a while
  $C --session-id tools --message '#short After it?' > "$W/resumed.log" 2>&1 </dev/null; tail -5 "$W/resumed.log"
  grep -q 'gateway state ownership' "$W/resumed.log" || break
  sleep 15
done
rm -f ~/.openclaw/agents/*/agent/*reindex* ~/.openclaw/agents/*/agent/*generation*
keep ~/.openclaw/agents agents
finish
all_there '#short What is in the notes?' '#tools Read the notes, count, fix the pears.' '#short And now?' '#short And with another model?' \
  '#picture Look at the dot.' '#slow Tell a story.' '#slow Tell another story.' '#short After it?'
