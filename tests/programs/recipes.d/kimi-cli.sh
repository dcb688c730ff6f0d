#!/bin/bash
# bash kimi-cli.sh INSTALL_FOLDER RESULT_FOLDER     sessions of Kimi CLI (PyPI kimi-cli), Python >= 3.12; 1.52 only says that it has ended
VERSION=${VERSION:-1.51.0}
. "$(dirname "$0")/lib.sh"
[ -n "$NEWER" ] || { echo "needs Python 3.12.4 or later"; exit 1; }
[ -x "$W/v/bin/kimi" ] || { "$NEWER" -m venv "$W/v" && "$W/v/bin/pip" install -q "kimi-cli==$VERSION"; }
export PATH="$W/v/bin:$PATH" KIMI_CLI_NO_AUTO_UPDATE=1
cat > "$W/script.json" <<'J'
{"#tools": [[["ReadFile", {"path": "/home/ada/garden/notes.txt"}], ["Shell", {"command": "wc -l notes.txt"}]],
            [["StrReplaceFile", {"path": "/home/ada/garden/notes.txt", "edit": {"old": "pears: 5", "new": "pears: 6"}}]],
            [["ReadFile", {"path": "/home/ada/garden/missing.txt"}], ["no_such_tool", {"x": 1}]]],
 "#picture": [[["ReadMediaFile", {"path": "/home/ada/garden/dot.png"}]]],
 "#task": [[["Agent", {"description": "count", "prompt": "#short count the fruits in notes.txt"}]]],
 "#hang": [[["Shell", {"command": "sleep 45"}]]]}
J
model "$W/script.json"
dot dot.png
mkdir -p ~/.kimi
{ echo 'default_model = "fake-large"'; echo 'telemetry = false'
printf '[providers.fake]\ntype = "openai_legacy"\nbase_url = "http://127.0.0.1:%s/v1"\napi_key = "sk-fake"\n' "$PORT"
for name in fake-large fake-small; do printf '[models.%s]\nprovider = "fake"\nmodel = "%s"\nmax_context_size = 200000\ncapabilities = ["image_in", "thinking"]\n' $name $name; done; } > ~/.kimi/config.toml
K="timeout -s INT 60 kimi --print"
say short; $K -p '#short What is in the notes?' </dev/null
say tools; $K -p '#tools Read the notes, count, fix the pears.' </dev/null | tail -5
say resumed; $K -C -p '#short And now?' </dev/null
say 'second model'; $K -C -m fake-small -p '#short And with another model?' </dev/null
say 'a picture that a tool reads'; $K -p '#picture Look at the dot.' </dev/null | tail -5
say task; $K -p '#task Ask a helper.' </dev/null | tail -5
say 'ctrl-c amid an answer'; killed INT 5 kimi --print -p '#slow Tell a story.'
say 'killed amid an answer'; killed KILL 5 kimi --print -p '#slow Tell another story.'
say 'killed amid a tool'; killed KILL 5 kimi --print -p '#hang Wait a while.'
say 'interactive: prompts, /title, /compact, /undo, /fork, escape'
screen kimicli 'kimi --yolo'; sleep 20; key '#tools Do it all.' 9; key '#short And then?' 4; key '/title Fruit count' 3; key '/compact' 7; key '#short After it?' 5
key '#short To be undone.' 5; key '#slow A long story.' 4; escape Escape 3; key '#short After the stop.' 5; key '/undo' 3; escape Enter 4; key '#short After the undo.' 5; key '/fork' 5; key '#short In the fork.' 5; unscreen
find ~/.kimi -type f | grep -v /logs/ | head -80
keep ~/.kimi/sessions sessions
cp ~/.kimi/kimi.json "$OUT/" 2>/dev/null
finish
all_there '#short What is in the notes?' '#tools Read the notes, count, fix the pears.' '#short And now?' '#short And with another model?' \
  '#picture Look at the dot.' '#task Ask a helper.' '#slow Tell a story.' '#slow Tell another story.' '#hang Wait a while.' \
  '#tools Do it all.' '#short After it?' '#short To be undone.' '#short After the stop.' '#short After the undo.' '#short In the fork.'
