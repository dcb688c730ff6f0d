#!/bin/bash
# bash grok.sh INSTALL_FOLDER RESULT_FOLDER     sessions of Grok Build (npm @xai-official/grok)
VERSION=${VERSION:-1.0.41}
. "$(dirname "$0")/lib.sh"
[ -x "$W/n/node_modules/.bin/grok" ] || npm install --silent --no-audit --no-fund --prefix "$W/n" "@xai-official/grok@$VERSION"
export PATH="$W/n/node_modules/.bin:$PATH" GROK_DISABLE_AUTOUPDATER=1 GROK_TELEMETRY_ENABLED=false GROK_FEEDBACK_ENABLED=false
cat > "$W/script.json" <<'J'
{"#tools": [[["read_file", {"target_file": "/home/ada/garden/notes.txt"}], ["run_terminal_command", {"command": "wc -l notes.txt", "description": "count"}]],
            [["search_replace", {"file_path": "/home/ada/garden/notes.txt", "old_string": "pears: 5", "new_string": "pears: 6"}]],
            [["read_file", {"target_file": "/home/ada/garden/missing.txt"}], ["no_such_tool", {"x": 1}]]],
 "#picture": [[["read_file", {"target_file": "/home/ada/garden/dot.png"}]]],
 "#task": [[["spawn_subagent", {"description": "count", "prompt": "#short count the fruits in notes.txt"}]]],
 "#hang": [[["run_terminal_command", {"command": "sleep 45", "description": "wait"}]]]}
J
model "$W/script.json"
dot dot.png
mkdir -p ~/.grok
{ printf '[models]\ndefault = "fake-large"\n'
for name in fake-large fake-small; do printf '[model.%s]\nmodel = "%s"\nbase_url = "http://127.0.0.1:%s/v1"\nname = "%s"\napi_key = "sk-fake"\napi_backend = "chat_completions"\ncontext_window = 200000\n' $name $name "$PORT" $name; done; } > ~/.grok/config.toml
G="timeout -k 5 -s INT 40 grok --always-approve"
say short; $G -p '#short What is in the notes?' </dev/null 2>&1 | tail -5
say tools; $G -p '#tools Read the notes, count, fix the pears.' </dev/null 2>&1 | tail -5
say resumed; $G -c -p '#short And now?' </dev/null 2>&1 | tail -5
say 'second model'; $G -c -m fake-small -p '#short And with another model?' </dev/null 2>&1 | tail -5
say forked; $G -c --fork-session -p '#short In the fork.' </dev/null 2>&1 | tail -5
say 'a picture that a tool reads'; $G -p '#picture Look at the dot.' </dev/null 2>&1 | tail -5
say task; $G -p '#task Ask a helper.' </dev/null 2>&1 | tail -5
say 'ctrl-c amid an answer'; killed INT 5 grok --always-approve -p '#slow Tell a story.'
say 'killed amid an answer'; killed KILL 5 grok --always-approve -p '#slow Tell another story.'
say 'killed amid a tool'; killed KILL 5 grok --always-approve -p '#hang Wait a while.'
say 'interactive: prompts, /rename, ctrl-c'
screen grok 'grok --always-approve --minimal'; sleep 12; key '#tools Do it all.' 8; key '#short And then?' 5; key '/rename Fruit count' 3; key '#short After it?' 5
key '#slow A long story.' 4; escape C-c 3; key '#short After the stop.' 6; unscreen
grok sessions list 2>&1 | head -20
find ~/.grok -type f | grep -vE '/(bin|logs|skills|cache)/' | head -90
keep ~/.grok/sessions sessions
finish
all_there '#short What is in the notes?' '#tools Read the notes, count, fix the pears.' '#short And now?' '#short And with another model?' '#short In the fork.' \
  '#picture Look at the dot.' '#task Ask a helper.' '#slow Tell a story.' '#slow Tell another story.' '#hang Wait a while.' \
  '#tools Do it all.' '#short After it?' '#short After the stop.'
