#!/bin/bash
# bash gptme.sh INSTALL_FOLDER RESULT_FOLDER     conversations of gptme (PyPI gptme), Python >= 3.10
VERSION=${VERSION:-0.35.1}
. "$(dirname "$0")/lib.sh"
[ -n "$NEWER" ] || { echo "needs Python 3.12.4 or later"; exit 1; }
[ -x "$W/v/bin/gptme" ] || { "$NEWER" -m venv "$W/v" && "$W/v/bin/pip" install -q "gptme==$VERSION"; }
export PATH="$W/v/bin:$PATH" OPENAI_API_KEY=sk-fake OPENAI_BASE_URL="http://127.0.0.1:$PORT/v1" GPTME_CHAT_HISTORY=false
cat > "$W/script.json" <<'J'
{"#tools": [["I look, and one fails.\n\n```shell\ncat notes.txt; cat missing.txt; echo '#short'\n```\n"]],
 "#call": [[["shell", {"command": "cat notes.txt"}], ["shell", {"command": "cat missing.txt"}]], [["no_such_tool", {"x": 1}]]],
 "#hang": [[["shell", {"command": "sleep 45"}]]],
 "#block": [["I wait.\n\n```shell\nsleep 45\n```\n"]]}
J
model "$W/script.json"
dot dot.png
G="timeout -k 5 -s INT 20 gptme --non-interactive --no-confirm -m local/fake-large"
say short; $G --name short '#short What is in the notes?' </dev/null | tail -5
say blocks; $G --name tools '#tools Read the notes and count.' </dev/null | tail -5
say resumed; $G --name tools '#short And now?' </dev/null | tail -5
say 'second model'; timeout -k 5 -s INT 20 gptme --non-interactive --no-confirm -m local/fake-small --name tools '#short And with another model?' </dev/null | tail -5
say calls; $G --tool-format tool --name calls '#call Read with calls.' </dev/null | tail -5
say image; $G --name image '#short What is in the picture?' dot.png </dev/null | tail -5
say 'ctrl-c amid an answer'; killed INT 5 gptme --non-interactive --no-confirm -m local/fake-large --name stopped '#slow Tell a story.'
say 'killed amid an answer'; killed KILL 5 gptme --non-interactive --no-confirm -m local/fake-large --name killed '#slow Tell another story.'
say 'killed amid a tool'; killed KILL 5 gptme --non-interactive --no-confirm --tool-format tool -m local/fake-large --name killed-tool '#hang Wait a while.'
say 'interactive: /rename, /undo, /fork, /compact'
screen gptme 'gptme --no-confirm -m local/fake-large --name talk'; sleep 25; key '#short First of all.' 6; key '/rename Fruit-count' 4; key '#short To be undone.' 6; key '/undo 2' 4; key '#short Second.' 6
key '/fork other' 5; key '#short In which one?' 6; key '/compact' 20; unscreen
gptme-util chats list 2>&1 | tail -30
find ~/.local/share/gptme -type f | head -60
keep ~/.local/share/gptme/logs logs
finish
all_there '#short What is in the notes?' '#tools Read the notes and count.' '#short And now?' '#short And with another model?' '#call Read with calls.' \
  '#short What is in the picture?' '#slow Tell a story.' '#slow Tell another story.' '#hang Wait a while.' '#short First of all.' '#short Second.'
