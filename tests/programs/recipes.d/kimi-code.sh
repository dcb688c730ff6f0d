#!/bin/bash
# bash kimi-code.sh INSTALL_FOLDER RESULT_FOLDER     sessions of Kimi Code (npm @moonshot-ai/kimi-code)
VERSION=${VERSION:-2.1.0}
. "$(dirname "$0")/lib.sh"
node24
[ -x "$W/n/node_modules/.bin/kimi" ] || npm install --silent --no-audit --no-fund --prefix "$W/n" "@moonshot-ai/kimi-code@$VERSION"
export PATH="$W/n/node_modules/.bin:$PATH" KIMI_CODE_NO_AUTO_UPDATE=1
cat > "$W/script.json" <<'J'
{"#tools": [[["Read", {"path": "/home/ada/garden/notes.txt"}], ["Bash", {"command": "wc -l notes.txt"}]],
            [["Edit", {"path": "/home/ada/garden/notes.txt", "old_string": "pears: 5", "new_string": "pears: 6"}]],
            [["Read", {"path": "/home/ada/garden/missing.txt"}], ["no_such_tool", {"x": 1}]]],
 "#picture": [[["ReadMediaFile", {"path": "/home/ada/garden/dot.png"}]]],
 "#task": [[["Agent", {"description": "count", "prompt": "#short count the fruits in notes.txt"}]]],
 "#hang": [[["Bash", {"command": "sleep 45"}]]]}
J
model "$W/script.json"
dot dot.png
mkdir -p ~/.kimi-code
{ echo 'default_model = "fake-large"'; echo 'telemetry = false'
printf '[providers.fake]\ntype = "openai"\nbase_url = "http://127.0.0.1:%s/v1"\napi_key = "sk-fake"\n' "$PORT"
for name in fake-large fake-small; do printf '[models.%s]\nprovider = "fake"\nmodel = "%s"\nmax_context_size = 200000\ncapabilities = ["image_in", "thinking"]\n' $name $name; done; } > ~/.kimi-code/config.toml
K="timeout -s INT 60 kimi"
say short; $K -p '#short What is in the notes?' </dev/null
say tools; $K -p '#tools Read the notes, count, fix the pears.' </dev/null
say resumed; $K -c -p '#short And now?' </dev/null
say 'second model'; $K -c -m fake-small -p '#short And with another model?' </dev/null
say 'a picture that a tool reads'; $K -p '#picture Look at the dot.' </dev/null
say task; $K -p '#task Ask a helper.' </dev/null
say 'ctrl-c amid an answer'; killed INT 5 kimi -p '#slow Tell a story.'
say 'killed amid an answer'; killed KILL 5 kimi -p '#slow Tell another story.'
say 'killed amid a tool'; killed KILL 5 kimi -p '#hang Wait a while.'
say 'interactive: prompts, /title, /compact, /undo, /fork, escape'
screen kimi 'kimi --auto'; sleep 10; escape Enter 5; key '#tools Do it all.' 8; key '#short And then?' 4; key '/title Fruit count' 3; key '/compact' 7; key '#short After it?' 5
key '#short To be undone.' 5; key '/undo 1' 3; escape Enter 2; key '#slow A long story.' 4; escape Escape 3; key '#short After the stop.' 5; key '/fork' 5; key '#short In the fork.' 5; unscreen
kimi session list
find ~/.kimi-code -type f | head -60
keep ~/.kimi-code/sessions sessions
cp ~/.kimi-code/session_index.jsonl "$OUT/" 2>/dev/null
finish
all_there '#short What is in the notes?' '#tools Read the notes, count, fix the pears.' '#short And now?' '#short And with another model?' \
  '#picture Look at the dot.' '#task Ask a helper.' '#slow Tell a story.' '#slow Tell another story.' '#hang Wait a while.' \
  '#tools Do it all.' '#short After it?' '#short To be undone.' '#short After the stop.' '#short In the fork.'
